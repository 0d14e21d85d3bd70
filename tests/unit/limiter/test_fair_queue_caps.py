"""Test the cap of a key, and sharing that is switched live."""

import asyncio

import pytest

from limiter import AsyncSemaphore, PermitAcquireAlreadyClosed, PermitAcquireQueueFull
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncSemaphore:
    return semaphore(100, clock, share_by_key=True, key_cap_percent=50)


@pytest.mark.parametrize("key", ["a", None])
async def test_capped_key_waits_with_the_pool_half_empty_and_holds_up_nobody(
    limiter: AsyncSemaphore, key: str | None
) -> None:
    permit = await limiter.acquire(40, key=key)
    capped = await start(limiter.acquire(11, key=key))
    assert not capped.done()
    other = await limiter.acquire(50, key="b")
    assert limiter.try_acquire(10, key=key) is None, "it stands behind the other of its key"
    permit.release()
    assert (await capped).size == 11
    other.release()
    capped.result().release()
    assert books_are_zero(limiter)


async def test_cap_is_for_what_a_key_holds_after_it_is_let_in(limiter: AsyncSemaphore) -> None:
    await limiter.acquire(40, key="a")
    assert limiter.try_acquire(11, key="a") is None
    assert limiter.try_acquire(10, key="a") is not None


async def test_request_above_the_cap_is_let_in_when_its_key_holds_nothing(limiter: AsyncSemaphore) -> None:
    small = await limiter.acquire(1, key="a")
    large = await start(limiter.acquire(80, key="a"))
    assert not large.done()
    small.release()
    assert (await large).size == 80


async def test_oversize_request_waits_for_an_empty_pool_and_is_clamped(limiter: AsyncSemaphore) -> None:
    small = await limiter.acquire(1, key="b")
    oversize = await start(limiter.acquire(150, key="a"))
    behind = await start(limiter.acquire(1, key="c"))
    assert not behind.done(), "the head holds up the others"
    small.release()
    assert (await oversize).size == 100
    oversize.result().release()
    assert (await behind).size == 1


async def test_growth_is_never_capped(limiter: AsyncSemaphore) -> None:
    permit = await limiter.acquire(40, key="a")
    await start(limiter.acquire(40, key="a"))
    assert limiter.try_update(permit, 95)


async def test_growth_that_brings_the_head_to_its_cap_lets_the_next_key_go(limiter: AsyncSemaphore) -> None:
    growing, pool = await limiter.acquire(20, key="a"), await limiter.acquire(55, key="pool")
    first = await start(limiter.acquire(30, key="a"))
    second = await start(limiter.acquire(10, key="b"))
    assert not second.done(), "held up by the head, which does not fit"
    await growing.update(21)
    await settle()
    assert second.done(), "the head has met its cap"
    pool.release()
    await settle()
    assert not first.done()


async def test_one_that_leaves_a_capped_key_lets_a_smaller_one_of_it_go(limiter: AsyncSemaphore) -> None:
    await limiter.acquire(40, key="a")
    large = await start(limiter.acquire(30, key="a"))
    small = await start(limiter.acquire(10, key="a"))
    assert limiter.statistics().keys_capped == 1
    large.cancel()
    assert (await small).size == 10


async def test_shrink_of_a_capped_key_lets_its_next_go(limiter: AsyncSemaphore) -> None:
    permit = await limiter.acquire(50, key="a")
    waiting = await start(limiter.acquire(10, key="a"))
    await permit.update(40)
    assert (await waiting).size == 10


@pytest.mark.parametrize("change", ["cap", "limit", "one line"])
async def test_cap_that_is_raised_or_taken_away_lets_go_at_once(limiter: AsyncSemaphore, change: str) -> None:
    await limiter.acquire(50, key="a")
    waiting = await start(limiter.acquire(10, key="a"))
    if change == "cap":
        limiter.set_sharing(True, 60)
    elif change == "limit":
        limiter.set_limit(120)
    else:
        limiter.set_sharing(False, 50)
    assert (await waiting).size == 10


async def test_lowered_cap_takes_nothing_back(limiter: AsyncSemaphore) -> None:
    permit = await limiter.acquire(50, key="a")
    limiter.set_sharing(True, 10)
    assert permit.size == 50
    assert limiter.try_acquire(1, key="a") is None
    assert limiter.try_acquire(10, key="b") is not None


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_cap_outside_1_to_100_is_refused(limiter: AsyncSemaphore, percent: int) -> None:
    with pytest.raises(ValueError, match=f"expected a cap of 1 to 100 percent, got {percent}"):
        limiter.set_sharing(True, percent)


async def test_switching_keeps_all_who_wait_in_the_order_of_their_arrival(clock: ManualClock) -> None:
    limiter = semaphore(1, clock, share_by_key=False)
    permit = await limiter.acquire(1)
    order: list[str] = []

    async def one(key: str) -> None:
        async with await limiter.acquire(1, key=key):
            order.append(key)

    for key in "aaab":
        await start(one(key))
    limiter.set_sharing(True, 100)
    for key in "ca":
        await start(one(key))
    assert limiter.queue_size == 6
    limiter.set_sharing(False, 100)
    assert (limiter.queue_size, limiter.share_by_key) == (6, False)
    permit.release()
    await settle()
    await settle()
    assert "".join(order) == "aaabca"
    assert books_are_zero(limiter)


async def test_switching_keeps_deadlines(limiter: AsyncSemaphore, clock: ManualClock) -> None:
    await limiter.acquire(50, key="a")
    waiting = await start(limiter.acquire(51, key="a", timeout_seconds=5.0))
    limiter.set_limit(51)
    limiter.set_sharing(False, 100)
    limiter.set_sharing(True, 100)
    clock.advance(5.0)
    assert (await asyncio.gather(waiting, return_exceptions=True))[0].__class__.__name__ == "PermitAcquireTimeout"
    assert clock.pending == 0


async def test_queue_bound_counts_capped_ones_and_close_refuses_them(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True, key_cap_percent=50, max_queue=2)
    permit = await limiter.acquire(50, key="a")
    tasks = [await start(limiter.acquire(1, key="a")), await start(limiter.acquire(60, key="b"))]
    with pytest.raises(PermitAcquireQueueFull):
        await limiter.acquire(60, key="c")
    limiter.close()
    for task in tasks:
        with pytest.raises(PermitAcquireAlreadyClosed):
            await task
    permit.release()
    assert books_are_zero(limiter)


async def test_who_waits_for_its_own_permits_only_makes_memory_not_short(limiter: AsyncSemaphore) -> None:
    short: list[bool] = []
    mine = await limiter.acquire(45, key="a")
    capped = await start(limiter.acquire(11, key="a"))
    assert limiter.waits_for_itself("a")
    short.append(limiter.short)
    others = await limiter.acquire(40, key="b")
    late = await start(limiter.acquire(30, key="c"))
    assert [limiter.waits_for_itself(key) for key in "abcd"] == [True, False, False, False]
    short.append(limiter.short)
    others.release()
    short.append(limiter.short)
    mine.release()
    for task in (capped, late):
        (await task).release()
    short.append(limiter.short)
    assert short == [False, True, False, False]
    assert books_are_zero(limiter)


async def test_memory_is_short_when_anybody_waits_in_one_line_or_grows(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=False)
    short: list[bool] = []
    held = await limiter.acquire(100)
    short.append(limiter.short)
    waiting = await start(limiter.acquire(1))
    short.append(limiter.short)
    held.release()
    first, second = await waiting, await limiter.acquire(99)
    growing = [await start(permit.update(150)) for permit in (first, second)]
    short.append(limiter.short)
    for permit in (first, second):
        permit.release()
    await asyncio.gather(*growing, return_exceptions=True)
    assert short == [False, True, True]
    assert books_are_zero(limiter)


@pytest.mark.parametrize(
    ("share_by_key", "cap_percent", "caps"), [(True, 50, True), (True, 100, False), (False, 50, False)]
)
def test_it_tells_whether_keys_are_capped(clock: ManualClock, share_by_key: bool, cap_percent: int, caps: bool) -> None:
    limiter = semaphore(100, clock, share_by_key=share_by_key, key_cap_percent=cap_percent)
    assert limiter.caps_keys is caps
    limiter.set_limit(0)
    assert not limiter.caps_keys, "of no limit there is no part"
