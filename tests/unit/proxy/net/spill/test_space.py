"""The books of the disk: whatever comes and goes, nobody has more than there is, and all of it comes back."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.counters import Counters
from proxy.net.spill.space import Kept, SpaceReservation, SpillSpace, leaves_enough

MIB = 1024 * 1024


def space(limit: int = 10 * MIB, files: int = 100, cap: int = 100) -> SpillSpace:
    return SpillSpace(limit, files, Counters(), cap)


def reserved(books: SpillSpace, size: int, key: Hashable = "a") -> SpaceReservation:
    found = books.reserve(size, key)
    assert isinstance(found, SpaceReservation)
    return found


def test_there_is_room_for_a_key_as_far_as_its_shares_go() -> None:
    books = space(10 * MIB, cap=50)
    reserved(books, 3 * MIB, "greedy")
    assert books.has_room_for(4 * MIB, "greedy"), "half of the memory fits into what is left of half of the disk"
    assert not books.has_room_for(6 * MIB, "greedy")
    assert books.has_room_for(6 * MIB, "other")


def test_files_are_bounded() -> None:
    books = space(files=2)
    first = reserved(books, 1)
    reserved(books, 1)
    assert books.reserve(1, "b") is Kept.NO_FILES
    assert books.lacking, "files are as scarce as space: slow lists on disk are judged by their rate"
    books.release(first)
    reserved(books, 1, "b")


def test_a_key_has_at_most_its_share() -> None:
    books = space(10 * MIB, cap=30)
    reserved(books, 3 * MIB, "greedy")
    assert books.reserve(1, "greedy") is Kept.NO_SPACE
    assert books.lacking == 0, "the space is not short for others"
    reserved(books, 3 * MIB, "other")


@pytest.mark.threat("disk-small-or-broken")
def test_three_greedy_keys_leave_files_to_a_fourth() -> None:
    books = space(files=100)
    for _ in range(100):
        for key in ("a", "b", "c"):
            books.reserve(1, key)
    assert [books.files_of(key) for key in ("a", "b", "c")] == [30, 30, 30]
    reserved(books, 1, "d")


def test_there_is_room_for_a_memory_while_all_of_it_would_fit() -> None:
    books = space(10 * MIB)
    first = reserved(books, 6 * MIB)
    assert books.has_room_for(4 * MIB, "b")
    second = reserved(books, 1)
    assert not books.has_room_for(4 * MIB, "b")
    books.release(second)
    assert books.has_room_for(4 * MIB, "b")
    books.reserve(5 * MIB, "b")
    assert not books.has_room_for(MIB, "b"), "a list has found no space"
    books.release(first)
    assert books.has_room_for(10 * MIB, "b")


def test_a_second_release_does_nothing() -> None:
    books = space()
    first = reserved(books, MIB)
    reserved(books, MIB)
    books.release(first)
    books.release(first)
    assert (books.held, books.files, books.held_by("a")) == (MIB, 1, MIB)


def test_a_list_that_could_never_have_space_makes_nobody_leave() -> None:
    books = space(MIB)
    assert books.reserve(2 * MIB, "b") is Kept.NO_SPACE
    assert books.lacking == 0


def test_a_full_file_system_is_short_of_space_although_the_books_have_some() -> None:
    books = space()
    books.disk_full(True)
    assert books.lacking > 0
    books.disk_full(False)
    assert books.lacking == 0


def test_a_tenth_of_the_file_system_stays_free() -> None:
    assert leaves_enough(free=100, total=1000, unwritten=0)
    assert not leaves_enough(free=99, total=1000, unwritten=0)
    assert leaves_enough(free=150, total=1000, unwritten=50)
    assert not leaves_enough(free=150, total=1000, unwritten=51)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "write", "release", "limit", "cap"]),
        st.integers(0, 7),
        st.integers(1, 4 * MIB),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_books_add_up_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    books = space(6 * MIB, files=5)
    held: list[SpaceReservation] = []
    for action, number, size in steps:
        if action == "reserve":
            before = books.held
            found = books.reserve(size, number % 3)
            if isinstance(found, SpaceReservation):
                held.append(found)
                assert books.held <= books.limit
            else:
                assert books.held == before
        elif action == "write" and held:
            books.written(held[number % len(held)], size)
        elif action == "release" and held:
            books.release(held.pop(number % len(held)))
        elif action == "limit":
            books.limit = size
        elif action == "cap":
            books.key_cap_percent = 1 + number * 14
        assert books.held == sum(each.size for each in held)
        assert books.files == len(held) <= 5
        assert books.unwritten == sum(each.unwritten for each in held) >= 0
        assert all(books.held_by(key) == sum(e.size for e in held if e.key == key) for key in range(3))
        assert all(books.files_of(key) == sum(e.key == key for e in held) for key in range(3))
        assert books.lacking >= 0
    for each in held:
        books.release(each)
    assert (books.held, books.files, books.unwritten) == (0, 0, 0)
