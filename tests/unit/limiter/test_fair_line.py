"""Turns by path: what a key waits for, what a charge costs it, and what is remembered of those that do not wait."""

import gc
import tracemalloc
import weakref

import pytest

from limiter.fair_line import MOST_DEBTORS, Entry, FairLine


class Name:
    """A key that can be seen to be forgotten."""


def fill(line: FairLine[Entry[str]], **items: int) -> None:
    """Let some paths wait, each with as many items, which are its name."""
    for name, count in items.items():
        for _ in range(count):
            line.push(("site", name), Entry(name))


def served(line: FairLine[Entry[str]], count: int, **costs: int) -> str:
    """Serve some items, each at the cost of its name."""
    served = ""
    for _ in range(count):
        head = line.head()
        assert head is not None
        served += line.pop(costs.get(head.item, 1)).item
    return served


def shown(line: FairLine[Entry[str]]) -> str:
    return "".join(entry.item for entry in line)


def test_keys_take_turns_at_each_level_and_items_of_a_path_keep_their_order() -> None:
    line: FairLine[Entry[str]] = FairLine()
    for number in range(3):
        for path in (("big", "a"), ("big", "b"), ("big", "c"), ("small", "d")):
            line.push(path, Entry(f"{path[1]}{number}"))
    assert [line.waiting(path) for path in ((), ("big",), ("big", "b"), ("other", "b"))] == [12, 9, 3, 0]
    assert served(line, 12) == "a0d0b0d1c0d2a1b1c1a2b2c2"
    assert not line


def test_who_begins_to_wait_is_behind_one_turn_of_each_other() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=100, b=3)
    assert served(line, 3) == "aba"
    fill(line, c=2)
    assert served(line, 6) == "bacbac"


def test_a_key_sits_out_just_the_rounds_that_an_item_used_beyond_its_own() -> None:
    line: FairLine[Entry[str]] = FairLine(quantum=10)
    for name in ("H", "h", "h", "h"):
        line.push(("heavy",), Entry(name))
    for _ in range(12):
        line.push(("light",), Entry("l"))
    assert served(line, 16, H=35, h=5, l=5) == "Hll" + "ll" + "ll" + "hll" + "hhll" + "ll"


@pytest.mark.parametrize("waits", [True, False])
def test_a_charge_delays_a_path_by_just_its_cost_less_what_is_taken_back(waits: bool) -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=5 * waits, b=10)
    line.spend(("site", "a"), 5)
    line.spend(("site", "a"), -2)
    fill(line, a=5 * (not waits))
    assert served(line, 9) == "bbbababab"


def test_what_is_taken_back_is_no_credit() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=9, b=9)
    line.spend(("site", "a"), -5)
    assert served(line, 6) == "ababab"


def test_a_charge_that_delays_nobody_does_not_count() -> None:
    line: FairLine[Entry[str]] = FairLine()
    line.spend(("site", "a"), 5)
    line.push(("other", "c"), Entry("c"))
    # In its site nobody waits.
    line.spend(("site", "a"), 5)
    assert served(line, 1) == "c"
    fill(line, a=2, b=2)
    assert served(line, 4) == "abab"


def test_a_charge_that_leaves_something_of_a_turn_does_not_end_it() -> None:
    line: FairLine[Entry[str]] = FairLine(quantum=10)
    fill(line, a=20, b=20)
    assert served(line, 5) == "aaaaa"
    line.spend(("site", "a"), 3)
    assert served(line, 3) == "aab"


def test_who_loses_a_turn_is_behind_all_others() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=2, b=1, c=1)
    line.skip()
    fill(line, d=1)
    assert served(line, 5) == "bcada"


def test_a_parked_path_holds_up_nobody_and_a_path_that_was_empty_is_parked_no_more() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=2, b=2)
    line.set_parked(("site", "a"), parked=True)
    assert served(line, 2) == "bb"
    assert (line.head(), len(line)) == (None, 2)
    fill(line, b=1)
    line.set_parked(("site", "a"), parked=False)
    assert served(line, 2) == "ba"
    line.set_parked(("site", "a"), parked=True)
    line.set_parked(("site",), parked=True)
    assert line.head() is None
    last = line.longest()
    assert last is not None
    assert line.remove(last)
    line.set_parked(("site",), parked=True)
    fill(line, a=1)
    assert served(line, 1) == "a"
    fill(line, b=3)
    owes = line.push(("site", "a"), Entry("a"))
    line.spend(("site", "a"), 2)
    line.set_parked(("site", "a"), parked=True)
    line.remove(owes)
    fill(line, a=1)
    assert served(line, 4) == "bbab"


def test_a_charge_does_not_count_while_all_are_parked() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=2, b=2)
    line.set_parked(("site", "a"), parked=True)
    line.set_parked(("site", "b"), parked=True)
    line.spend(("site", "a"), 5)
    line.set_parked(("site", "a"), parked=False)
    line.set_parked(("site", "b"), parked=False)
    assert served(line, 4) == "abab"


def test_keys_of_band_1_come_after_others_but_for_every_fourth_turn() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, x=9, y=1, a=4, b=4)
    for name in "xy":
        line.set_band(("site", name), 1)
    assert served(line, 9) == "abaxbabya"
    fill(line, c=1)
    assert served(line, 4) == "bcxx"
    line.set_band(("site", "x"), 0)
    fill(line, d=2)
    assert served(line, 4) == "xdxd"


def test_turns_before_a_key_of_band_1_waits_do_not_count() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=9)
    assert served(line, 3) == "aaa"
    fill(line, x=1)
    line.set_band(("site", "x"), 1)
    assert served(line, 4) == "aaax"


def test_a_key_that_comes_to_band_1_takes_turns_with_those_there_at_once() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, x=9, a=40)
    line.set_band(("site", "x"), 1)
    assert served(line, 20) == "aaax" * 5
    fill(line, y=1)
    line.set_band(("site", "y"), 1)
    assert served(line, 8) == "aaaxaaay"


def test_a_path_that_owes_owes_the_same_in_another_band_and_one_that_was_empty_is_in_band_0() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=9, b=9)
    assert served(line, 4) == "abab"
    line.spend(("site", "a"), 3)
    for name in "ab":
        line.set_band(("site", name), 1)
    assert served(line, 5) == "bbbab"
    fill(line, c=1)
    entry = line.push(("site", "d"), Entry("d"))
    line.set_band(("site", "d"), 1)
    line.spend(("site", "d"), 1)
    line.remove(entry)
    fill(line, d=1)
    assert served(line, 2) == "cd"


def test_who_was_there_first_pushes_out_nobody_who_has_no_more() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=1, b=2)
    newcomer = line.push(("site", "a"), Entry("a"))
    assert line.longest() is newcomer


def test_the_longest_path_is_that_of_who_came_last_if_there_are_several() -> None:
    line: FairLine[Entry[str]] = FairLine()
    line.push(("one", "a"), Entry("a"))
    line.push(("one", "b"), Entry("b"))
    line.push(("other", "c"), Entry("c"))
    newcomer = line.push(("other", "d"), Entry("d"))
    assert line.longest() is newcomer
    line.push(("one", "a"), Entry("last of a"))
    longest = line.longest()
    assert longest is not None
    assert longest.item == "last of a"
    line.push(("other", "d"), Entry("last of d"))
    line.push(("one", "e"), Entry("e"))
    line.push(("other", "c"), Entry("last of c"))
    line.set_band(("one",), 1)
    line.set_band(("one", "b"), 1)
    longest = line.longest()
    assert longest is not None
    assert longest.item == "last of a"


def test_a_path_is_forgotten_when_it_is_empty_and_has_paid() -> None:
    gc.disable()
    try:
        line: FairLine[Entry[str]] = FairLine()
        light, heavy = Name(), Name()
        seen_light, seen_heavy = weakref.ref(light), weakref.ref(heavy)
        line.push(("site", light), Entry("l"))
        line.spend(("site", "owes much"), 100)
        entry = line.push(("site", light), Entry("m"))
        line.push(("site", heavy), Entry("h"))
        fill(line, other=20)
        del light, heavy
        line.remove(entry)
        assert served(line, 1) == "l"
        assert seen_light() is None
        assert "h" in served(line, 2, h=3)
        assert seen_heavy() is not None, "it owes two rounds"
        served(line, 6)
        assert seen_heavy() is None
    finally:
        gc.enable()


def test_who_owes_and_waits_again_is_served_when_it_has_paid() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=1, b=9)
    assert served(line, 2, a=3) == "ab"
    fill(line, a=2)
    assert served(line, 10) == "bbababbbbb"
    assert not line


def test_items_of_the_empty_path_are_first_in_first_out() -> None:
    line: FairLine[Entry[str]] = FairLine()
    entries = [line.push((), Entry(name)) for name in "abcd"]
    assert line.remove(entries[1])
    assert not line.remove(entries[1])
    assert shown(line) == "acd"
    assert served(line, 3, a=5) == "acd"
    assert (len(line), line.head(), line.keys()) == (0, None, (0, 0))


def test_a_line_shows_the_first_of_each_path_in_the_order_of_turns_and_parked_ones_last() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=3, b=1, c=2)
    line.set_parked(("site", "a"), parked=True)
    line.push(("other", "d"), Entry("d"))
    line.push(("owes", "e"), Entry("e"))
    line.spend(("owes", "e"), 5)
    line.spend(("owes no more", "f"), 5)
    assert shown(line) == "bcadecaa"
    assert line.keys() == (3, 10)


def test_rounds_that_nobody_has_a_turn_in_cost_nothing() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, a=1, b=1)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            line.spend(("site", "a"), 1)
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()
    assert served(line, 2) == "ba"


def test_of_those_that_owe_so_many_are_remembered() -> None:
    line: FairLine[Entry[str]] = FairLine()
    fill(line, waits=1)
    names = [Name() for _ in range(MOST_DEBTORS + 100)]
    seen = [weakref.ref(name) for name in names]
    for name in names:
        line.spend(("site", name), 1_000_000)
    names.clear()
    del name
    assert [each() is not None for each in seen] == [False] * 100 + [True] * MOST_DEBTORS
    assert served(line, 1) == "waits"
    assert not any(each() for each in seen), "nobody waits"
