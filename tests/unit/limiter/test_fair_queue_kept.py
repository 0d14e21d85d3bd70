"""Test the part of a limit that is kept for keys that hold nothing."""

import asyncio

import pytest

from limiter import AsyncSemaphore, Permit
from limiter.sites import SiteKey
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncSemaphore:
    """Return a semaphore of which two of eight are kept."""
    return semaphore(8, clock, share_by_key=True, kept_of=4)


async def held(limiter: AsyncSemaphore, key: str, count: int) -> list[Permit]:
    return [await limiter.acquire(1, key=key) for _ in range(count)]


async def waiting(limiter: AsyncSemaphore, key: str, count: int = 1, n: int = 1) -> "list[asyncio.Task[Permit]]":
    return [await start(limiter.acquire(n, key=key)) for _ in range(count)]


def served(tasks: "list[asyncio.Task[Permit]]") -> int:
    return sum(task.done() for task in tasks)


@pytest.mark.threat("web-lists-one-address")
async def test_a_key_that_takes_all_it_can_keeps_no_newcomer_waiting(limiter: AsyncSemaphore) -> None:
    many = await held(limiter, "many", 6)
    behind = await waiting(limiter, "many", 5)
    assert served(behind) == 0
    first, second = limiter.try_acquire(1, key="new"), limiter.try_acquire(1, key="newer")
    assert first is not None
    assert second is not None
    assert limiter.try_acquire(1, key="newest") is None, "all is held"
    for permit in (first, second):
        permit.release()
    await settle()
    assert served(behind) == 0, "what newcomers leave is for newcomers"
    many[0].release()
    await settle()
    assert served(behind) == 1


async def test_newcomers_that_wait_are_served_before_keys_that_hold_something(limiter: AsyncSemaphore) -> None:
    many, few = await held(limiter, "many", 6), await held(limiter, "few", 1)
    last = await held(limiter, "last", 1)
    behind = await waiting(limiter, "many", 3)
    newcomer, holder = await waiting(limiter, "new"), await waiting(limiter, "few")
    last[0].release()
    await settle()
    assert [served(each) for each in (behind, newcomer, holder)] == [0, 1, 0]
    few[0].release()
    await settle()
    assert [served(each) for each in (behind, holder)] == [0, 1], "who holds nothing any more is a newcomer"
    for permit in many[:3]:
        permit.release()
    await settle()
    assert served(behind) == 1


async def test_keys_that_are_set_aside_take_turns(limiter: AsyncSemaphore) -> None:
    one, other = await held(limiter, "one", 4), await held(limiter, "other", 2)
    first, second = await waiting(limiter, "one", 4), await waiting(limiter, "other", 4)
    for permit in (*one[:3], *other[:1]):
        permit.release()
        await settle()
    assert (served(first), served(second)) == (2, 2)


async def test_a_key_that_is_set_aside_waits_for_room_that_others_hold(limiter: AsyncSemaphore) -> None:
    await held(limiter, "many", 6)
    before = limiter.short
    await waiting(limiter, "many")
    assert (before, limiter.short) == (False, True)
    assert limiter.statistics().keys_capped == 0


async def test_the_networks_of_a_site_are_one_key_for_what_is_kept(limiter: AsyncSemaphore) -> None:
    networks = [SiteKey(f"network {number}", "site") for number in range(9)]
    for network in networks[:6]:
        await limiter.acquire(1, key=network)
    assert limiter.try_acquire(1, key=networks[6]) is None
    assert limiter.try_acquire(1, key=SiteKey("network", "other site")) is not None


async def test_one_that_leaves_lets_a_smaller_one_behind_it_go(limiter: AsyncSemaphore) -> None:
    await held(limiter, "many", 5)
    large, small = await waiting(limiter, "many", n=2), await waiting(limiter, "many")
    assert served(small) == 0
    large[0].cancel()
    await settle()
    assert served(small) == 1


async def test_the_first_outside_holds_up_the_others_there_and_no_newcomer(limiter: AsyncSemaphore) -> None:
    many, few = await held(limiter, "many", 5), await held(limiter, "few", 1)
    large, small = await waiting(limiter, "many", n=4), await waiting(limiter, "few")
    many[0].release()
    await settle()
    assert limiter.try_acquire(1, key="few") is None
    assert (served(large), served(small)) == (0, 0), "a large request would wait without end"
    newcomer = limiter.try_acquire(1, key="new")
    assert newcomer is not None
    for permit in (newcomer, *many[1:4]):
        permit.release()
    await settle()
    assert (served(large), served(small)) == (1, 0)
    few[0].release()
    await settle()
    assert served(small) == 1


async def test_a_key_outside_that_meets_its_cap_holds_up_nobody(clock: ManualClock) -> None:
    limiter = semaphore(8, clock, share_by_key=True, kept_of=4, key_cap_percent=50)
    many, more = await held(limiter, "many", 3), await held(limiter, "more", 2)
    await held(limiter, "few", 1)
    first, second = await waiting(limiter, "many"), await waiting(limiter, "few")
    assert limiter.short
    await many[0].update(2)
    await settle()
    more[0].release()
    more[1].release()
    await settle()
    assert (served(first), served(second)) == (0, 1)
    many[0].release()
    await settle()
    assert served(first) == 1


async def test_a_raised_limit_lets_go_who_was_set_aside(limiter: AsyncSemaphore) -> None:
    await held(limiter, "many", 6)
    behind = await waiting(limiter, "many", 4)
    limiter.set_limit(12)
    await settle()
    assert served(behind) == 3


async def test_a_limit_smaller_than_its_parts_keeps_nothing(clock: ManualClock) -> None:
    limiter = semaphore(3, clock, share_by_key=True, kept_of=4)
    permits = await held(limiter, "many", 3)
    for permit in permits:
        permit.release()
    assert books_are_zero(limiter)


async def test_without_turns_and_without_a_limit_nothing_is_kept(clock: ManualClock) -> None:
    for limiter in (
        semaphore(8, clock, share_by_key=False, kept_of=4),
        semaphore(0, clock, share_by_key=True, kept_of=4),
    ):
        await held(limiter, "many", 8)
        assert limiter.held == 8


async def test_whoever_waits_is_shown(limiter: AsyncSemaphore) -> None:
    await held(limiter, "many", 6)
    await waiting(limiter, "many", 2)
    shown = [each.key for some in limiter.waiters(9, 9) for each in some]
    assert shown == ["many", "many"]
