import pytest

from proxy.telemetry.heavy_hitters import LONGEST_NAME, HeavyHitters
from proxy.telemetry.usage import HALF_LIFE_SECONDS, Usage, UsageTracker
from tests.support.loops.clock import ManualClock

ENTRIES = 16


def book_at(clock: ManualClock) -> UsageTracker:
    return UsageTracker(clock, ENTRIES)


def names(rows: list[Usage]) -> list[str]:
    return [row.name for row in rows]


def test_both_the_namespace_and_the_principal_are_charged() -> None:
    book = book_at(ManualClock())
    book.charge("t/a", "alice", byte_seconds=10.0, sent_bytes=100)
    book.charge("t/b", "alice", byte_seconds=5.0, sent_bytes=300)
    book.refused("t/b", "bob")
    top = book.top(5)
    assert top.namespaces == [Usage("t/a", 10.0, 100.0, 0.0), Usage("t/b", 5.0, 300.0, 1.0)]
    assert top.principals == [Usage("alice", 15.0, 400.0, 0.0), Usage("bob", 0.0, 0.0, 1.0)]


def test_what_was_used_halves_with_each_half_life() -> None:
    clock = ManualClock()
    book = book_at(clock)
    book.charge("t/a", None, byte_seconds=8.0, sent_bytes=80)
    clock.advance(HALF_LIFE_SECONDS)
    book.charge("t/b", None, byte_seconds=5.0, sent_bytes=0)
    clock.advance(HALF_LIFE_SECONDS)
    (b, a) = book.top(5).namespaces
    assert (b.name, a.name) == ("t/b", "t/a")
    assert [b.byte_seconds, a.byte_seconds, a.sent_bytes] == pytest.approx([2.5, 2.0, 20.0])


@pytest.mark.parametrize("half_lives", [100, 100_000])
def test_after_a_long_silence_the_past_is_forgotten_and_the_book_goes_on(half_lives: int) -> None:
    clock = ManualClock()
    book = book_at(clock)
    for number in range(100):
        book.charge(f"t/{number}", None, byte_seconds=1e9, sent_bytes=10**9)
    clock.advance(half_lives * HALF_LIFE_SECONDS)
    book.charge("t/new", None, byte_seconds=3.0, sent_bytes=4)
    assert book.top(5).namespaces == [Usage("t/new", 3.0, 4.0, 0.0)]


def test_the_heavy_ones_are_found_among_any_number_of_names() -> None:
    book = book_at(ManualClock())
    for number in range(20_000):
        book.charge(f"noise/{number}", number, byte_seconds=1.0, sent_bytes=1)
        if number % 4 == 0:
            book.charge("heavy/a", "alice", byte_seconds=2.0, sent_bytes=1)
        if number % 5 == 0:
            book.charge("heavy/b", "bob", byte_seconds=1.5, sent_bytes=1)
    top = book.top(2)
    assert names(top.namespaces)[:2] == ["heavy/a", "heavy/b"]
    assert names(top.principals)[:2] == ["alice", "bob"]


def test_nobody_is_shown_with_more_than_was_used() -> None:
    sketch = HeavyHitters(8)
    used: dict[str, float] = {}
    for number in range(5000):
        name, weight = f"n{number * 7919 % 61}", float(number % 13)
        used[name] = used.get(name, 0.0) + weight
        sketch.add(name, weight)
    assert len(sketch) == 8
    assert all(sketch.get(name) <= used[name] for name in sketch.top(8))


def test_long_names_are_cut_and_stay_apart() -> None:
    book = book_at(ManualClock())
    for end in ("x", "y"):
        book.charge("n" * 100_000 + end, None, byte_seconds=1.0, sent_bytes=1)
    book.charge("n" * LONGEST_NAME, None, byte_seconds=1.0, sent_bytes=1)
    book.charge("\udc80" * 500, None, byte_seconds=1.0, sent_bytes=1)
    shown = names(book.top(5).namespaces)
    assert len(shown) == len(set(shown)) == 4
    assert max(map(len, shown)) <= LONGEST_NAME + 11
