"""Own the few words in which the limiter's tests speak: start a waiter, let it run, look at what it got."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

from limiter.observer import WaitObserver
from limiter.semaphore import AsyncSemaphore
from tests.support.loops.clock import ManualClock

T = TypeVar("T")


def semaphore(
    limit: int,
    clock: ManualClock,
    *,
    max_queue: int = 0,
    timeout_seconds: float = 25.0,
    observer: WaitObserver | None = None,
    key_cap_percent: int = 100,
    **given: Any,
) -> AsyncSemaphore:
    made = AsyncSemaphore(
        "heap", limit, max_queue=max_queue, timeout_seconds=timeout_seconds, clock=clock, observer=observer, **given
    )
    made.set_sharing(made.share_by_key, key_cap_percent)
    return made


async def settle() -> None:
    """Let every task run until it waits; no time passes."""
    for _ in range(5):
        await asyncio.sleep(0)


async def start(coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task and let it run until it waits."""
    task = asyncio.get_running_loop().create_task(coroutine)
    await settle()
    return task


def books_are_zero(limiter: AsyncSemaphore) -> bool:
    return (limiter.held, limiter.queue_size, limiter.growers_waiting, limiter.top_holders(9)) == (0, 0, 0, [])


def alive(kind: type) -> int:
    """Count the objects of a kind that anybody remembers."""
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())
