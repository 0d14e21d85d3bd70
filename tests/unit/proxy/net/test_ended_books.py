"""Which ended socket has to go, by books alone: no socket, no clock."""

from proxy.net.counters import EndedReset
from proxy.net.ended_sockets import (
    LONGEST_SECONDS,
    MOST_SOCKETS,
    STALL_SECONDS,
    WELL_BYTES_PER_SECOND,
    EndedBooks,
    Left,
)

BIG = 1 << 20


def big(unsent: int = BIG) -> Left:
    return Left(unsent, unsent)


def test_who_takes_nothing_is_reset_after_a_while_and_who_takes_a_byte_is_not() -> None:
    books = EndedBooks(10 * BIG)
    for number in (1, 2):
        assert books.add(number, big(), 0.0) == []
    assert books.saw(1, big(), STALL_SECONDS - 1) is None
    assert books.saw(2, big(BIG - 1), STALL_SECONDS - 1) is None
    assert books.saw(1, big(), STALL_SECONDS) is EndedReset.STALLED
    assert books.saw(2, big(BIG - 1), STALL_SECONDS) is None


def test_who_takes_a_byte_now_and_then_has_a_longest_time() -> None:
    books = EndedBooks(10 * BIG)
    books.add(1, big(), 0.0)
    now, left = 0.0, BIG
    while (why := books.saw(1, big(left), now)) is None:
        now, left = now + STALL_SECONDS / 2, left - 1
    assert why is EndedReset.TOO_LONG
    assert now == LONGEST_SECONDS


def test_the_sum_is_that_of_what_is_there() -> None:
    books = EndedBooks(10 * BIG)
    books.add(1, big(), 0.0)
    books.add(2, Left(BIG, 3 * BIG), 0.0)
    assert books.used_bytes == 4 * BIG
    books.saw(2, Left(1, 7), 1.0)
    assert books.used_bytes == BIG + 7
    books.remove(2)
    books.remove(2)
    assert (books.used_bytes, len(books)) == (BIG, 1)


def test_for_a_newcomer_those_go_who_take_least() -> None:
    books = EndedBooks(3 * BIG)
    for number, took in ((1, 100), (2, 0), (3, 10)):
        books.add(number, big(), 0.0)
        books.saw(number, Left(BIG - took, BIG), 1.0)
    books.looked_at_all(1.0)
    assert books.add(4, big(), 1.0) == [2]
    assert books.add(5, Left(BIG, 2 * BIG), 1.0) == [3, 1]
    # The others came after the last look.
    assert books.add(6, big(), 1.0) == [6]
    assert books.used_bytes == 3 * BIG


def test_who_takes_well_keeps_its_place_and_who_has_all_goes_first() -> None:
    books = EndedBooks(2 * BIG + 8)
    books.add(1, big(), 0.0)
    books.saw(1, Left(BIG - WELL_BYTES_PER_SECOND, BIG), 1.0)
    books.add(2, Left(BIG, 8), 0.0)
    books.saw(2, Left(0, 8), 1.0)
    books.add(3, big(), 0.0)
    books.saw(3, big(), 1.0)
    books.looked_at_all(1.0)
    assert books.add(4, big(), 1.0) == [2, 3]
    assert books.add(5, big(), 1.0) == [5]
    assert len(books) == 2


def test_one_that_is_larger_than_the_bound_goes_itself() -> None:
    books = EndedBooks(BIG)
    assert books.add(1, big(BIG + 1), 0.0) == [1]
    assert (books.used_bytes, len(books)) == (0, 0)


def test_their_number_is_bounded() -> None:
    books = EndedBooks(10 * BIG)
    for number in range(MOST_SOCKETS):
        assert books.add(number, Left(1, 1), 0.0) == []
    assert books.add(-1, Left(1, 1), 0.0) == [-1]
    books.looked_at_all(1.0)
    assert len(books.add(-1, Left(1, 1), 1.0)) == 1
    assert len(books) == MOST_SOCKETS
