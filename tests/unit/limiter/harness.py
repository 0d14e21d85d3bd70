"""Own the few words in which the limiter's tests speak: start a waiter, let it run, look at what it got."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

from limiter.observer import LimiterObserver
from limiter.semaphore import AsyncSemaphore
from tests.support.loops.clock import ManualClock

T = TypeVar("T")


def semaphore(
    limit: int,
    clock: ManualClock,
    *,
    max_queue: int = 0,
    timeout_seconds: float = 25.0,
    observer: LimiterObserver | None = None,
    **given: Any,
) -> AsyncSemaphore:
    return AsyncSemaphore(
        "heap", limit, max_queue=max_queue, timeout_seconds=timeout_seconds, clock=clock, observer=observer, **given
    )


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


class RecordingObserver:
    """Write down every call as `name` or `name seconds`, or raise an error each time."""

    def __init__(self, error: Exception | None = None) -> None:
        self.heard: list[str] = []
        self._error = error

    def _hear(self, what: str) -> None:
        if self._error is not None:
            raise self._error
        self.heard.append(what)

    def queued(self) -> None:
        self._hear("queued")

    def granted(self, wait_seconds: float) -> None:
        self._hear(f"granted {wait_seconds:g}")

    def timed_out(self, wait_seconds: float) -> None:
        self._hear(f"timed out {wait_seconds:g}")

    def rejected(self) -> None:
        self._hear("rejected")

    def cancelled(self) -> None:
        self._hear("cancelled")

    def updated(self) -> None:
        self._hear("updated")

    def released(self) -> None:
        self._hear("released")
