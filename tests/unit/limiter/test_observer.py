"""Test what an observer hears."""

import asyncio

import pytest

from limiter import PermitAcquireQueueFull, PermitAcquireTimeout
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import RecordingObserver, semaphore, start


async def test_observer_hears_each_thing_in_its_order_with_the_wait(clock: ManualClock) -> None:
    observer = RecordingObserver()
    limiter = semaphore(10, clock, max_queue=1, timeout_seconds=9.0, observer=observer)
    permit = await limiter.acquire(10)
    waiting = await start(limiter.acquire(3))
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(1)
    clock.advance(2.5)
    await permit.update(5)
    await waiting
    assert observer.heard == ["granted 0", "queued", "rejected", "updated", "granted 2.5"]


async def test_observer_hears_how_a_wait_ended_without_a_grant(clock: ManualClock) -> None:
    observer = RecordingObserver()
    limiter = semaphore(10, clock, timeout_seconds=9.0, observer=observer)
    permit = await limiter.acquire(10)
    leaving, expiring = await start(limiter.acquire(3)), await start(limiter.acquire(3))
    with pytest.raises(PermitAcquireTimeout):
        await limiter.acquire(1, timeout_seconds=0)
    leaving.cancel()
    clock.advance(9.0)
    await asyncio.gather(leaving, expiring, return_exceptions=True)
    permit.release()
    permit.release()
    assert observer.heard == [
        "granted 0",
        "queued",
        "queued",
        "timed out 0",
        "cancelled",
        "timed out 9",
        "released",
    ]


async def test_growth_is_heard_as_granted_and_updated(clock: ManualClock) -> None:
    observer = RecordingObserver()
    limiter = semaphore(10, clock, observer=observer)
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    observer.heard.clear()
    await first.update(6)
    growing = await start(second.update(6))
    clock.advance(1.5)
    first.release()
    await growing
    assert observer.heard == ["granted 0", "updated", "queued", "released", "granted 1.5", "updated"]


async def test_holders_are_told_when_a_request_or_a_growth_begins_to_wait_and_not_before(clock: ManualClock) -> None:
    told: list[bool] = []
    limiter = semaphore(10, clock)
    limiter.notify_waits(lambda: told.append(limiter.short))
    first, second = await limiter.acquire(5), await limiter.acquire(5)
    assert told == []
    waiting = await start(limiter.acquire(1))
    assert told == [True]
    second.release()
    (await waiting).release()
    third = await limiter.acquire(5)
    # The first growth overshoots, the second waits.
    await first.update(6)
    growing = await start(third.update(6))
    assert told == [True, True]
    first.release()
    await growing


async def test_a_callback_that_raises_keeps_nobody_from_waiting(clock: ManualClock) -> None:
    limiter = semaphore(10, clock)
    told: list[int] = []
    limiter.notify_waits(lambda: told.append(1 // 0))
    limiter.notify_waits(lambda: told.append(1))
    permit = await limiter.acquire(10)
    waiting = await start(limiter.acquire(1))
    permit.release()
    assert (await waiting).size == 1
    assert (told, limiter.statistics().observer_errors) == ([1], 1)
