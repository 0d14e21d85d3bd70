"""Test charges: the charged key changes while an acquire waits and while its permit is held."""

import asyncio
import gc

import pytest

from limiter import AsyncSemaphore, Charge, PermitAcquireTimeout
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start


@pytest.fixture(params=[False, True], ids=["one line", "turns"])
def limiter(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncSemaphore:
    return semaphore(10, clock, share_by_key=request.param)


async def test_charge_names_who_is_charged_and_what_it_holds_and_changes_it(limiter: AsyncSemaphore) -> None:
    charge = Charge("a")
    held: list[object] = [charge.holding]
    permit = await limiter.acquire(4, charge=charge)
    assert limiter.top_holders(9) == [("a", 4)]
    charge.reassign("b")
    await permit.update(6)
    assert (limiter.top_holders(9), limiter.held, charge.key) == ([("b", 6)], 6, "b")
    held.append(charge.holding)
    charge.reassign(None)
    assert (limiter.top_holders(9), limiter.held) == ([], 6)
    permit.release()
    charge.reassign("c")
    assert [*held, charge.holding] == [None, ("heap", 6), None]
    assert books_are_zero(limiter)


async def test_reassign_before_the_grant_is_taken_charges_the_new_key(limiter: AsyncSemaphore) -> None:
    held, charge = await limiter.acquire(10), Charge("a")
    waiting = await start(limiter.acquire(4, charge=charge))
    held.release()
    charge.reassign("b")
    assert limiter.top_holders(9) == [("b", 4)]
    (await waiting).release()
    assert books_are_zero(limiter)


async def test_reassign_lets_go_who_waited_for_the_cap_of_the_old_key(clock: ManualClock) -> None:
    turns, charge = semaphore(100, clock, share_by_key=True, key_cap_percent=50), Charge("a")
    await turns.acquire(45, charge=charge)
    waiting = await start(turns.acquire(10, key="a"))
    assert (waiting.done(), turns.statistics().keys_capped) == (False, 1)
    charge.reassign("b")
    assert (await waiting).size == 10


@pytest.mark.parametrize("position", range(6))
async def test_moved_waiter_stands_among_those_of_the_new_key_by_arrival(clock: ManualClock, position: int) -> None:
    limiter, order = semaphore(1, clock, share_by_key=True, max_queue=6), list[int]()
    held = await limiter.acquire(1)

    async def one(number: int, charge: Charge) -> None:
        async with await limiter.acquire(1, charge=charge):
            order.append(number)

    charges = [Charge("mover" if number == position else "group") for number in range(6)]
    for number, charge in enumerate(charges):
        await start(one(number, charge))
    charges[position].reassign("group")
    assert (limiter.statistics().keys_waiting, limiter.queue_size) == (1, 6)
    held.release()
    await settle()
    await settle()
    assert order == [*range(6)]


async def test_deficit_moves_with_the_permit_and_its_old_key_owes_nothing(clock: ManualClock) -> None:
    turns = semaphore(100, clock, share_by_key=True)
    charge = Charge("a")
    await turns.acquire(50, key="pool")
    permit = await turns.acquire(10, charge=charge)
    head = await start(turns.acquire(60, key="head"))
    waiting = [await start(turns.acquire(20, key=key)) for key in "abc"]
    await permit.update(50)
    charge.reassign("b")
    head.cancel()
    await permit.update(30)
    await settle()
    assert [each.done() for each in waiting] == [True, False, False]


async def test_charge_serves_one_acquire_at_a_time(limiter: AsyncSemaphore) -> None:
    charge, other = Charge("a"), Charge("b")
    permit = await limiter.acquire(10, charge=charge)
    waiting = await start(limiter.acquire(1, charge=other))
    for used in (charge, other):
        with pytest.raises(ValueError, match="expected an unused charge"):
            await limiter.acquire(1, charge=used)
    permit.release()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    for again in (charge, other):
        assert limiter.try_acquire(5, charge=again) is not None


async def test_charge_of_a_failed_acquire_leaves_no_cycle(limiter: AsyncSemaphore, clock: ManualClock) -> None:
    held = await limiter.acquire(10)
    charge = Charge("a")
    gc.collect()
    gc.disable()
    try:
        waiting = await start(limiter.acquire(1, charge=charge, timeout_seconds=1.0))
        clock.advance(1.0)
        await asyncio.gather(waiting, return_exceptions=True)
        del waiting
        held.release()
        assert limiter.try_acquire(1, charge=charge) is not None
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_one_that_is_joined_keeps_its_place_and_waits_as_long_as_the_last_to_join(
    limiter: AsyncSemaphore, clock: ManualClock
) -> None:
    held, charges = await limiter.acquire(10), [Charge("a"), Charge("a")]
    first, second = [await start(limiter.acquire(4, charge=charge)) for charge in charges]
    alone = await start(limiter.acquire(4, key="a"))
    clock.advance(20.0)
    for charge in charges:
        charge.extend()
    clock.advance(24.5)
    await settle()
    assert isinstance(alone.exception(), PermitAcquireTimeout)
    assert limiter.queue_size == 2
    await limiter.update(held, 6)
    await settle()
    assert (first.done(), second.done()) == (True, False)
    clock.advance(0.5)
    with pytest.raises(PermitAcquireTimeout):
        await second
    charges[0].extend()
    assert limiter.statistics().timed_out == 2


async def test_an_unhashable_key_is_refused_and_changes_nothing(limiter: AsyncSemaphore) -> None:
    with pytest.raises(TypeError, match=r"expected a hashable key, got \['a'\]"):
        Charge(["a"])  # type: ignore[arg-type]  # the misuse
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
