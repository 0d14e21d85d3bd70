"""Where a stream stands in a topic, worked out by hand."""

import pytest

from pipeline.sources.pulsar.catalog import state_of
from pipeline.sources.pulsar.offsets import (
    NOWHERE,
    Ledger,
    Mark,
    PartitionState,
    Position,
    Range,
    decode,
    encode,
    entry_limits,
    next_mark,
    ranges,
)


def partition(*ledgers: tuple[int, int], end: Position | None = None) -> PartitionState:
    held = tuple(Ledger(*ledger) for ledger in ledgers)
    filled = [Position(ledger.id, ledger.entries - 1) for ledger in held if ledger.entries]
    return PartitionState("t", -1, held, end or (filled or [NOWHERE])[-1])


TWO = partition((5, 3), (7, 4), (9, 0))


@pytest.mark.parametrize(
    ("start", "count", "end"),
    [
        ((5, -1), 0, (5, -1)),
        ((5, -1), 2, (5, 1)),
        # Read to its end, a ledger is let go for the next one that has entries.
        ((5, -1), 3, (7, -1)),
        ((5, 2), 0, (7, -1)),
        ((5, 0), 4, (7, 1)),
        # An empty ledger is never gone to: its broker may delete it.
        ((5, -1), 7, (7, 3)),
        ((5, -1), 99, (7, 3)),
        ((7, 3), 5, (7, 3)),
    ],
)
def test_position_moves_by_entries_over_ledgers(start: Position, count: int, end: Position) -> None:
    assert TWO.advanced(Position(*start), count) == end


def test_empty_ledgers_in_between_are_passed_over() -> None:
    state = partition((5, 2), (6, 0), (7, 1))
    assert state.advanced(Position(5, 0), 1) == (7, -1)
    assert state.advanced(Position(5, 0), 2) == (7, 0)


def test_unread_entries_are_counted_and_found() -> None:
    assert TWO.entries_after(Position(5, 1)) == 5
    assert [TWO.unread_entry(Position(5, 1), number) for number in (1, 2, 5)] == [(5, 2), (7, 0), (7, 3)]


def test_nothing_is_lost_while_the_ledger_of_a_position_is_there() -> None:
    assert not TWO.lost(Mark(Position(5, 2)))


def test_ledger_that_is_gone_may_have_taken_events_along() -> None:
    assert TWO.lost(Mark(Position(4, 9)))
    # Of a topic that was there before, under the same name.
    assert TWO.lost(Mark(Position(11, 0)))


def test_ledger_that_was_read_may_go_while_the_one_that_follows_is_there() -> None:
    read = partition((5, 3), (7, 0)).mark(Position(5, 2))
    assert read.follows == 7
    assert not partition((7, 4)).lost(read)
    # It was filled and trimmed, too, or deleted for being empty: nobody knows.
    assert partition((9, 4)).lost(read)


def test_ledger_that_was_not_read_to_its_end_is_followed_by_none() -> None:
    assert partition((5, 3), (7, 0)).mark(Position(5, 1)).follows == -1
    assert partition((7, 4)).lost(partition((5, 3), (7, 0)).mark(Position(5, 1)))


def test_nothing_is_lost_if_nothing_was_written_after_the_position() -> None:
    assert not partition((9, 0), end=Position(7, 3)).lost(Mark(Position(7, 3)))


def test_partition_that_never_had_anything_loses_nothing() -> None:
    assert not partition((9, 0)).lost(Mark(NOWHERE))


def test_new_partition_is_first_put_to_its_beginning_and_read_by_the_next_batch() -> None:
    state = partition((4, 0), (5, 3))
    first = next_mark(state, None, None)
    assert first == Mark(Position(5, -1))
    assert next_mark(state, first, None) == Mark(Position(5, 2))


def test_partition_without_entries_stays_nowhere() -> None:
    assert next_mark(partition((5, 0)), Mark(NOWHERE), 10) == Mark(NOWHERE)


def test_gap_is_counted_and_the_next_batch_goes_on_after_it() -> None:
    state = partition((7, 4), (9, 0))
    over = next_mark(state, Mark(Position(5, 1), 1), None)
    assert over == Mark(Position(7, -1), 2)
    assert next_mark(state, over, None) == Mark(Position(7, 3), 2, follows=9)


def test_gap_without_anything_after_it_is_counted_once() -> None:
    over = next_mark(partition((9, 0)), Mark(Position(5, 1)), None)
    assert over == Mark(NOWHERE, 1)
    assert next_mark(partition((9, 0)), over, None) == over


def test_without_ledgers_a_batch_goes_to_the_end() -> None:
    state = PartitionState("t", -1, None, Position(7, 3))
    assert next_mark(state, Mark(NOWHERE), 1) == Mark(Position(7, 3))
    assert next_mark(state, Mark(Position(8, 0)), 1) == Mark(Position(8, 0))


def test_offset_is_written_the_same_whatever_the_order() -> None:
    marks = {"b": Mark(Position(1, 2)), "a": Mark(Position(3, 4), 5), "c": Mark(Position(6, 7), 0, 8)}
    assert list(encode(marks).items()) == [("a", [3, 4, 5]), ("b", [1, 2]), ("c", [6, 7, 0, 8])]
    assert decode(encode(marks)) == marks
    assert decode('{"a": [3, 4, 5]}') == {"a": Mark(Position(3, 4), 5)}


def test_range_names_the_ledgers_that_must_bring_something() -> None:
    found = ranges({"t": Mark(Position(5, 1))}, {"t": Mark(Position(7, 0))}, {"t": TWO})
    assert found == [Range("t", -1, Position(5, 1), Position(7, 0), (5, 7))]


def test_range_may_end_before_the_first_entry_of_a_ledger() -> None:
    found = ranges({"t": Mark(Position(5, 0))}, {"t": Mark(Position(7, -1))}, {"t": TWO})
    assert found == [Range("t", -1, Position(5, 0), Position(7, -1), (5,))]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Mark(Position(5, 2)), Mark(Position(5, 2))),
        (Mark(Position(5, 2)), Mark(Position(7, -1))),
        (Mark(NOWHERE), Mark(Position(5, -1))),
        (Mark(Position(4, 0)), Mark(Position(5, -1), 1)),
    ],
)
def test_steps_that_hold_nothing_are_no_ranges(start: Mark, end: Mark) -> None:
    assert ranges({"t": start}, {"t": end}, {"t": TWO}) == []


def test_new_partition_has_no_range_yet() -> None:
    assert ranges({}, {"t": Mark(Position(5, -1))}, {"t": TWO}) == []


def test_limit_is_shared_by_what_each_partition_has() -> None:
    assert entry_limits({"a": 30, "b": 10}, {"a": 10, "b": 10}, 200) == {"a": 15, "b": 5}


def test_limit_counts_rows_not_entries() -> None:
    assert entry_limits({"a": 100, "b": 100}, {"a": 1, "b": 9}, 100) == {"a": 10, "b": 10}


def test_every_partition_goes_on_by_an_entry_at_least() -> None:
    assert entry_limits({"a": 1000, "b": 1}, {"a": 1, "b": 1}, 10) == {"a": 9, "b": 1}


def test_limit_that_everything_fits_in_limits_nothing() -> None:
    assert entry_limits({"a": 3, "b": 4}, {"a": 2, "b": 2}, 14) == {"a": 3, "b": 4}


def test_time_is_found_before_the_first_entry_that_is_not_older() -> None:
    assert TWO.before(Position(5, 2)) == (5, 1)
    assert TWO.before(Position(7, 0)) == (7, -1)
    # The broker answers with the next entry if all are older: of an empty ledger nothing is noted down.
    assert TWO.before(Position(9, 0)) == (7, 3)


def test_statistics_of_a_ledger_that_is_written_to_count_by_the_last_entry() -> None:
    stats = {
        "lastConfirmedEntry": "7:2",
        "ledgers": [{"ledgerId": 7, "entries": 0}, {"ledgerId": 5, "entries": 4}],
    }
    state = state_of("t", 3, stats)
    assert state == PartitionState("t", 3, (Ledger(5, 4), Ledger(7, 3)), Position(7, 2))


def test_statistics_after_a_restart_end_with_the_last_ledger_that_has_entries() -> None:
    ledgers = [{"ledgerId": 5, "entries": 4}, {"ledgerId": 7, "entries": 0}]
    assert state_of("t", -1, {"lastConfirmedEntry": "5:3", "ledgers": ledgers}).end == (5, 3)
    assert state_of("t", -1, {"lastConfirmedEntry": "7:-1", "ledgers": ledgers}).end == (5, 3)


def test_statistics_do_not_count_entries_that_nobody_has_confirmed() -> None:
    ledgers = [{"ledgerId": 5, "entries": 4}, {"ledgerId": 7, "entries": 2}]
    state = state_of("t", -1, {"lastConfirmedEntry": "5:3", "ledgers": ledgers})
    assert state == PartitionState("t", -1, (Ledger(5, 4), Ledger(7, 0)), Position(5, 3))


def test_statistics_of_an_empty_topic_end_nowhere() -> None:
    state = state_of("t", -1, {"lastConfirmedEntry": "6:-1", "ledgers": [{"ledgerId": 6, "entries": 0}]})
    assert (state.beginning, state.end) == (NOWHERE, NOWHERE)
