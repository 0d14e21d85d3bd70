"""Which ended socket has to go, by the quota alone: no socket, no clock."""

import pytest

from proxy.net.ended_sockets import (
    LEAST_BYTES,
    LONGEST_SECONDS,
    MOST_SOCKETS,
    STALL_SECONDS,
    WELL_BYTES_PER_SECOND,
    EndedQuota,
    EndedReset,
    Left,
)

BIG = 1 << 20


def big(unsent: int = BIG) -> Left:
    return Left(unsent, unsent)


def test_who_takes_nothing_is_reset_after_a_while_and_who_takes_a_byte_is_not() -> None:
    quota = EndedQuota(10 * BIG)
    for number in (1, 2):
        assert quota.add(number, big(), 0.0) == []
    assert quota.saw(1, big(), STALL_SECONDS - 1) is None
    assert quota.saw(2, big(BIG - 1), STALL_SECONDS - 1) is None
    assert quota.saw(1, big(), STALL_SECONDS) is EndedReset.STALLED
    assert quota.saw(2, big(BIG - 1), STALL_SECONDS) is None


def test_who_takes_a_byte_now_and_then_has_a_longest_time() -> None:
    quota = EndedQuota(10 * BIG)
    quota.add(1, big(), 0.0)
    now, left = 0.0, BIG
    while (why := quota.saw(1, big(left), now)) is None:
        now, left = now + STALL_SECONDS / 2, left - 1
    assert why is EndedReset.TOO_LONG
    assert now == LONGEST_SECONDS


@pytest.mark.threat("refilled-relays")
def test_for_a_newcomer_those_go_who_take_least() -> None:
    quota = EndedQuota(3 * BIG)
    for number, took in ((1, 100), (2, 0), (3, 10)):
        quota.add(number, big(), 0.0)
        quota.saw(number, Left(BIG - took, BIG), 1.0)
    quota.looked_at_all(1.0)
    assert quota.add(4, big(), 1.0) == [2]
    assert quota.add(5, Left(BIG, 2 * BIG), 1.0) == [3, 1]
    # The others came after the last look.
    assert quota.add(6, big(), 1.0) == [6]
    assert quota.used_bytes == 3 * BIG


def test_who_takes_well_keeps_its_place_and_who_has_all_goes_first() -> None:
    quota = EndedQuota(2 * BIG + 8)
    quota.add(1, big(), 0.0)
    quota.saw(1, Left(BIG - WELL_BYTES_PER_SECOND, BIG), 1.0)
    quota.add(2, Left(BIG, 8), 0.0)
    quota.saw(2, Left(0, 8), 1.0)
    quota.add(3, big(), 0.0)
    quota.saw(3, big(), 1.0)
    quota.looked_at_all(1.0)
    assert quota.add(4, big(), 1.0) == [2, 3]
    assert quota.add(5, big(), 1.0) == [5]
    assert len(quota) == 2


def test_their_number_is_bounded() -> None:
    quota = EndedQuota(10 * BIG)
    for number in range(MOST_SOCKETS):
        assert quota.add(number, Left(1, 1), 0.0) == []
    assert quota.add(-1, Left(1, 1), 0.0) == [-1]
    quota.looked_at_all(1.0)
    assert len(quota.add(-1, Left(1, 1), 1.0)) == 1
    assert len(quota) == MOST_SOCKETS


def test_a_full_queue_of_the_usual_size_has_room_alone() -> None:
    # What Linux held of a socket whose buffer it had tuned to the 4 MiB of `tcp_wmem`.
    assert EndedQuota(LEAST_BYTES).add(1, Left(4_183_055, 4_239_360), 0.0) == []
