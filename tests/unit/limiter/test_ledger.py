"""Test the books: what fits, what is booked, when an overshoot begins and ends."""

import pytest

from limiter import AsyncSemaphore, Permit
from limiter.ledger import MUST_WAIT, Ledger
from tests.support.loops.clock import ManualClock


@pytest.fixture
def owner(clock: ManualClock) -> AsyncSemaphore:
    return AsyncSemaphore("heap", 10, max_queue=0, timeout_seconds=1.0, clock=clock)


def booked(ledger: Ledger, owner: AsyncSemaphore, size: int, key: str | None = None) -> Permit:
    permit = Permit(owner, size, key)
    ledger.resize(permit, size)
    return permit


@pytest.mark.parametrize(
    ("limit", "held", "asked", "room"),
    [
        (10, 0, 10, 10),
        (10, 4, 6, 6),
        (10, 4, 7, MUST_WAIT),
        (10, 10, 1, MUST_WAIT),
        (10, 10, 0, 0),
        (10, 0, 11, 10),
        (10, 1, 11, MUST_WAIT),
        (0, 99, 11, 11),
        (-1, 99, 11, 11),
    ],
)
def test_room_for_a_newcomer(owner: AsyncSemaphore, limit: int, held: int, asked: int, room: int) -> None:
    ledger = Ledger(limit)
    booked(ledger, owner, held)
    assert ledger.room_for(asked) == room


def test_held_is_the_sum_of_sizes_and_the_peak_stays(owner: AsyncSemaphore) -> None:
    ledger = Ledger(10)
    first, second = booked(ledger, owner, 3, "a"), booked(ledger, owner, 4, "a")
    assert (ledger.held, ledger.holders) == (7, {"a": 7})
    ledger.resize(first, 0)
    assert (ledger.held, ledger.holders, ledger.peak_held) == (4, {"a": 4}, 7)
    ledger.resize(second, 0)
    assert (ledger.held, ledger.holders, ledger.peak_held) == (0, {}, 7)


def test_one_permit_may_overshoot_and_no_other(owner: AsyncSemaphore) -> None:
    ledger = Ledger(10)
    first, second = booked(ledger, owner, 5), booked(ledger, owner, 5)
    assert ledger.may_grow(first, 50)
    ledger.resize(first, 50)
    assert ledger.overshooter is first
    assert ledger.may_grow(first, 60)
    assert not ledger.may_grow(second, 6)


@pytest.mark.parametrize(("shrunk_to", "still"), [(49, True), (6, True), (5, False), (0, False)])
def test_overshoot_ends_with_what_was_overshot(owner: AsyncSemaphore, shrunk_to: int, still: bool) -> None:
    ledger = Ledger(10)
    first = booked(ledger, owner, 5)
    booked(ledger, owner, 5)
    ledger.resize(first, 50)
    ledger.resize(first, shrunk_to)
    assert (ledger.overshooter is first) is still


def test_overshoot_ends_when_others_made_room(owner: AsyncSemaphore) -> None:
    ledger = Ledger(10)
    first, second = booked(ledger, owner, 5), booked(ledger, owner, 5)
    ledger.resize(first, 9)
    ledger.resize(second, 1)
    assert ledger.overshooter is None


@pytest.mark.parametrize(("limit", "ended"), [(13, False), (14, True), (0, True)])
def test_overshoot_ends_when_the_limit_is_raised_over_it(owner: AsyncSemaphore, limit: int, ended: bool) -> None:
    ledger = Ledger(10)
    first = booked(ledger, owner, 5)
    booked(ledger, owner, 5)
    ledger.resize(first, 9)
    ledger.set_limit(limit)
    assert (ledger.overshooter is None) is ended


def test_lowered_limit_is_nobodys_overshoot(owner: AsyncSemaphore) -> None:
    ledger = Ledger(10)
    first, second = booked(ledger, owner, 5), booked(ledger, owner, 5)
    ledger.set_limit(2)
    assert ledger.overshooter is None
    assert ledger.may_grow(first, 6)
    ledger.resize(first, 6)
    assert not ledger.may_grow(second, 6)
