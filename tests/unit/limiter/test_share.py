"""A share of a semaphore: its limit and its bounds on those who wait are the whole's, whose observer hears of waits."""

import pytest

from limiter import AsyncSemaphore, PermitAcquireQueueFull, PermitAcquireTimeout
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import semaphore, settle, start


@pytest.mark.parametrize(("limit", "part", "least"), [(100, 0.5, 50), (9, 0.25, 3), (1, 0.25, 1), (0, 0.5, 0)])
def test_a_share_is_a_part_of_the_limit_and_never_none_of_it(
    clock: ManualClock, limit: int, part: float, least: int
) -> None:
    assert semaphore(limit, clock).share("part", part).limit == least


async def test_a_share_follows_the_limit_and_the_bounds_of_the_whole(clock: ManualClock) -> None:
    whole = semaphore(100, clock, max_queue=2, timeout_seconds=5.0)
    share = whole.share("part", 0.5)
    await share.acquire(50)
    waiting = [await start(share.acquire(50)) for _ in range(2)]
    with pytest.raises(PermitAcquireQueueFull):
        await share.acquire(1)
    whole.set_limit(200)
    whole.max_queue, whole.timeout_seconds = 1, 7.0
    share.follow()
    await settle()
    assert [task.done() for task in waiting] == [True, False]
    with pytest.raises(PermitAcquireQueueFull):
        await share.acquire(1)
    waiting.pop().cancel()
    late = await start(share.acquire(1))
    clock.advance(6.9)
    assert not late.done()
    clock.advance(0.1)
    with pytest.raises(PermitAcquireTimeout):
        await late


async def test_who_waits_for_a_share_holds_up_nobody_at_the_whole_or_at_another(clock: ManualClock) -> None:
    whole = semaphore(4, clock)
    full, other = whole.share("full", 0.25), whole.share("other", 0.5)
    await full.acquire(1)
    waiting = await start(full.acquire(1))
    assert (await other.acquire(2)).size == 2
    assert (await whole.acquire(4)).size == 4
    assert not waiting.done()


async def test_the_observer_of_the_whole_hears_of_waits_and_not_of_grants_without_one(clock: ManualClock) -> None:
    heard = list[tuple[float, bool]]()
    whole: AsyncSemaphore = semaphore(4, clock, observer=lambda seconds, served: heard.append((seconds, served)))
    share = whole.share("part", 0.25)
    permit = await share.acquire(1)
    served, _ = await start(share.acquire(1)), await start(share.acquire(1, timeout_seconds=3.0))
    clock.advance(2.0)
    permit.release()
    await served
    clock.advance(1.0)
    assert heard == [(2.0, True), (3.0, False)]
    assert whole.statistics().granted == 0


async def test_the_observer_of_the_whole_hears_nothing_of_a_share_beside_it(clock: ManualClock) -> None:
    heard = list[tuple[float, bool]]()
    whole = semaphore(100, clock, observer=lambda seconds, served: heard.append((seconds, served)))
    share = whole.share("beside", 1 / 4, beside=True)
    first = await share.acquire(25)
    second = await start(share.acquire(5))
    first.release()
    (await second).release()
    assert (share.limit, heard) == (25, [])
