"""Test charges: the charged key changes while an acquire waits and while its permit is held."""

import asyncio
import gc

import pytest

from limiter import AsyncSemaphore, Charge, PermitAcquireTimeout
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start

POLICIES = pytest.mark.parametrize("share_by_key", [False, True])


@POLICIES
async def test_charge_names_who_is_charged_and_changes_it(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key)
    charge = Charge("a")
    permit = await limiter.acquire(4, charge=charge)
    assert limiter.top_holders(9) == [("a", 4)]
    charge.reassign("b")
    await permit.update(6)
    assert (limiter.top_holders(9), limiter.held, charge.key) == ([("b", 6)], 6, "b")
    charge.reassign(None)
    assert (limiter.top_holders(9), limiter.held) == ([], 6)
    permit.release()
    charge.reassign("c")
    assert books_are_zero(limiter)


@POLICIES
async def test_reassign_before_the_grant_is_taken_charges_the_new_key(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key)
    held = await limiter.acquire(10)
    charge = Charge("a")
    waiting = await start(limiter.acquire(4, charge=charge))
    charge.reassign("b")
    held.release()
    charge.reassign("c")
    assert limiter.top_holders(9) == [("c", 4)]
    (await waiting).release()
    assert books_are_zero(limiter)


@POLICIES
async def test_reassign_survives_a_growth_that_waits(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key)
    charge = Charge("a")
    first, second = await limiter.acquire(5), await limiter.acquire(5, charge=charge)
    await first.update(6)
    growing = await start(second.update(8))
    charge.reassign("b")
    first.release()
    await growing
    assert limiter.top_holders(9) == [("b", 8)]
    second.release()
    assert books_are_zero(limiter)


async def test_moved_waiter_stands_among_those_of_the_new_key_by_arrival(clock: ManualClock) -> None:
    for position in range(6):
        limiter = semaphore(1, clock, share_by_key=True)
        held = await limiter.acquire(1)
        order: list[int] = []

        async def one(number: int, charge: Charge, limiter: AsyncSemaphore = limiter, order: list[int] = order) -> None:
            async with await limiter.acquire(1, charge=charge):
                order.append(number)

        charges = [Charge("mover" if number == position else "group") for number in range(6)]
        for number, charge in enumerate(charges):
            await start(one(number, charge))
        charges[position].reassign("group")
        assert limiter.statistics().keys_waiting == 1
        held.release()
        await settle()
        await settle()
        assert order == sorted(order)
        assert len(order) == 6
        assert books_are_zero(limiter)


async def test_reassign_lets_go_who_was_capped_and_who_stood_behind(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True, key_cap_percent=50)
    await limiter.acquire(45, key="a")
    charge = Charge("a")
    moved = await start(limiter.acquire(10, charge=charge))
    behind = await start(limiter.acquire(5, key="a"))
    charge.reassign("b")
    await settle()
    assert (moved.done(), behind.done()) == (True, True)


async def test_reassign_of_a_permit_makes_room_under_the_cap_of_the_old_key(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True, key_cap_percent=50)
    charge = Charge("a")
    await limiter.acquire(50, charge=charge)
    waiting = await start(limiter.acquire(10, key="a"))
    await settle()
    assert limiter.statistics().keys_capped == 1
    charge.reassign("b")
    await settle()
    assert waiting.done()
    assert waiting.result().size == 10
    assert limiter.try_acquire(1, key="b") is None


async def test_deficit_moves_with_the_permit(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True)
    charge = Charge("a")
    await limiter.acquire(50, key="pool")
    permit = await limiter.acquire(10, charge=charge)
    head = await start(limiter.acquire(60, key="head"))
    of_a, of_b = [await start(limiter.acquire(20, key=key)) for key in ("a", "b")]
    await permit.update(50)
    charge.reassign("b")
    head.cancel()
    await permit.update(30)
    await settle()
    assert (of_a.done(), of_b.done()) == (True, False)


async def test_the_old_key_of_a_permit_owes_nothing_for_it(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True)
    charge = Charge("a")
    await limiter.acquire(50, key="pool")
    permit = await limiter.acquire(10, charge=charge)
    head = await start(limiter.acquire(60, key="head"))
    of_a, of_c = [await start(limiter.acquire(20, key=key)) for key in ("a", "c")]
    await permit.update(50)
    charge.reassign("b")
    head.cancel()
    await permit.update(30)
    await settle()
    assert (of_a.done(), of_c.done()) == (True, False)
    of_c.cancel()


async def test_moved_waiter_keeps_its_deadline_and_its_place_in_the_count(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, share_by_key=True, max_queue=1)
    held = await limiter.acquire(10)
    charge = Charge("a")
    waiting = await start(limiter.acquire(4, charge=charge, timeout_seconds=3.0))
    charge.reassign("b")
    assert limiter.queue_size == 1
    clock.advance(3.0)
    with pytest.raises(PermitAcquireTimeout):
        await waiting
    charge.reassign("c")
    held.release()
    assert books_are_zero(limiter)


@POLICIES
async def test_charge_serves_one_acquire_at_a_time(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key)
    charge = Charge("a")
    permit = await limiter.acquire(10, charge=charge)
    with pytest.raises(ValueError, match="expected an unused charge"):
        limiter.try_acquire(1, charge=charge)
    permit.release()
    again = limiter.try_acquire(10, charge=charge)
    assert again is not None
    other = Charge("b")
    waiting = await start(limiter.acquire(1, charge=other))
    with pytest.raises(ValueError, match="expected an unused charge"):
        await limiter.acquire(1, charge=other)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    again.release()
    assert limiter.try_acquire(1, charge=other) is not None


async def test_charge_of_a_failed_acquire_leaves_no_cycle(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, share_by_key=True)
    held = await limiter.acquire(10)
    charge = Charge("a")
    gc.collect()
    gc.disable()
    try:
        waiting = await start(limiter.acquire(1, charge=charge, timeout_seconds=1.0))
        clock.advance(1.0)
        await asyncio.gather(waiting, return_exceptions=True)
        del waiting
        assert charge.begin() == "a"
        held.release()
        assert gc.collect() == 0
    finally:
        gc.enable()


@POLICIES
async def test_one_that_is_joined_waits_on_in_its_place(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key, timeout_seconds=10.0)
    held = await limiter.acquire(10)
    charge = Charge("a")
    first = await start(limiter.acquire(4, charge=charge))
    clock.advance(9.0)
    second = await start(limiter.acquire(4, key="a"))
    charge.extend()
    clock.advance(9.5)
    await settle()
    assert not first.done()
    assert limiter.queue_size == 2
    await limiter.update(held, 6)
    await settle()
    assert first.done()
    assert not second.done()
    clock.advance(1.0)
    with pytest.raises(PermitAcquireTimeout):
        await second
    (await first).release()
    held.release()
    charge.extend()
    assert books_are_zero(limiter)


async def test_one_that_was_joined_gives_up_when_the_last_to_join_would(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, timeout_seconds=10.0)
    held = await limiter.acquire(10)
    charge = Charge("a")
    waiting = await start(limiter.acquire(4, charge=charge))
    clock.advance(4.0)
    charge.extend()
    clock.advance(9.5)
    await settle()
    assert not waiting.done()
    clock.advance(0.5)
    with pytest.raises(PermitAcquireTimeout):
        await waiting
    assert limiter.statistics().timed_out == 1
    held.release()
    assert books_are_zero(limiter)


def test_charge_of_an_unhashable_key_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a hashable key, got \['a'\]"):
        Charge(["a"])  # type: ignore[arg-type]  # the misuse


@POLICIES
async def test_reassign_to_an_unhashable_key_changes_nothing(clock: ManualClock, share_by_key: bool) -> None:
    limiter = semaphore(10, clock, share_by_key=share_by_key)
    of_permit, of_waiter = Charge("a"), Charge("b")
    permit = await limiter.acquire(10, charge=of_permit)
    waiting = await start(limiter.acquire(4, charge=of_waiter))
    for charge in (of_permit, of_waiter):
        with pytest.raises(TypeError, match="expected a hashable key"):
            charge.reassign([])  # type: ignore[arg-type]  # the misuse
    with pytest.raises(TypeError, match="expected a hashable key"):
        limiter.reassign(permit, [])  # type: ignore[arg-type]  # the misuse
    assert (of_permit.key, of_waiter.key, limiter.top_holders(9)) == ("a", "b", [("a", 10)])
    permit.release()
    assert limiter.top_holders(9) == [("b", 4)]
    (await waiting).release()
    assert books_are_zero(limiter)
