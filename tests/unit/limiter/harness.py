"""Own the few words in which the limiter's tests speak: start a waiter, let it run, look at what it got."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from limiter.observer import LimiterObserver
from limiter.semaphore import AsyncSemaphore
from tests.support.loops.clock import ManualClock

T = TypeVar("T")


class Policy:
    """What `semaphore` makes where a test does not say: both, one after the other (see conftest)."""

    share_by_key = False


def semaphore(
    limit: int,
    clock: ManualClock,
    *,
    max_queue: int = 0,
    timeout_seconds: float = 25.0,
    observer: LimiterObserver | None = None,
    share_by_key: bool | None = None,
    key_cap_percent: int = 100,
    kept_of: int = 0,
) -> AsyncSemaphore:
    return AsyncSemaphore(
        "heap",
        limit,
        max_queue=max_queue,
        timeout_seconds=timeout_seconds,
        clock=clock,
        observer=observer,
        share_by_key=Policy.share_by_key if share_by_key is None else share_by_key,
        key_cap_percent=key_cap_percent,
        kept_of=kept_of,
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
    return (limiter.held, limiter.queue_size, limiter.growers_waiting, limiter.top_holders(9)) == (
        0,
        0,
        0,
        [],
    )


class RecordingObserver:
    """Write down every call as `name` or `name seconds`."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def queued(self) -> None:
        self.heard.append("queued")

    def granted(self, wait_seconds: float) -> None:
        self.heard.append(f"granted {wait_seconds:g}")

    def timed_out(self, wait_seconds: float) -> None:
        self.heard.append(f"timed out {wait_seconds:g}")

    def rejected(self) -> None:
        self.heard.append("rejected")

    def cancelled(self) -> None:
        self.heard.append("cancelled")

    def updated(self) -> None:
        self.heard.append("updated")

    def released(self) -> None:
        self.heard.append("released")


class RaisingObserver:
    """Raise whatever it is told."""

    def queued(self) -> None:
        raise RuntimeError("queued")

    def granted(self, wait_seconds: float) -> None:
        raise RuntimeError("granted")

    def timed_out(self, wait_seconds: float) -> None:
        raise RuntimeError("timed out")

    def rejected(self) -> None:
        raise RuntimeError("rejected")

    def cancelled(self) -> None:
        raise RuntimeError("cancelled")

    def updated(self) -> None:
        raise RuntimeError("updated")

    def released(self) -> None:
        raise RuntimeError("released")
