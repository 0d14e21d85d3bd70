"""Where a stream stands in a topic, worked out by hand."""

import pytest

from pipeline.sources.pulsar.catalog import state_of
from pipeline.sources.pulsar.offsets import (
    NOWHERE,
    Ledger,
    Mark,
    PartitionState,
    Position,
    decode,
    encode,
    entry_limits,
    next_mark,
)


def test_without_ledgers_a_batch_goes_to_the_end() -> None:
    state = PartitionState("t", -1, None, Position(7, 3))
    assert next_mark(state, Mark(NOWHERE), 1) == Mark(Position(7, 3))
    assert next_mark(state, Mark(Position(8, 0)), 1) == Mark(Position(8, 0))


def test_offset_is_written_the_same_whatever_the_order() -> None:
    marks = {"b": Mark(Position(1, 2)), "a": Mark(Position(3, 4), 5), "c": Mark(Position(6, 7), 0, 8)}
    assert list(encode(marks).items()) == [("a", [3, 4, 5]), ("b", [1, 2]), ("c", [6, 7, 0, 8])]
    assert decode(encode(marks)) == marks
    assert decode('{"a": [3, 4, 5]}') == {"a": Mark(Position(3, 4), 5)}


@pytest.mark.parametrize(
    ("unread", "rows", "most", "limits"),
    [
        ({"a": 30, "b": 10}, {"a": 10, "b": 10}, 200, {"a": 15, "b": 5}),
        # Rows are counted, not entries.
        ({"a": 100, "b": 100}, {"a": 1, "b": 9}, 100, {"a": 10, "b": 10}),
        # Every partition goes on by an entry at least.
        ({"a": 1000, "b": 1}, {"a": 1, "b": 1}, 10, {"a": 9, "b": 1}),
        ({"a": 3, "b": 4}, {"a": 2, "b": 2}, 14, {"a": 3, "b": 4}),
    ],
)
def test_limit_is_shared_by_what_each_partition_has(
    unread: dict[str, int], rows: dict[str, float], most: int, limits: dict[str, int]
) -> None:
    assert entry_limits(unread, rows, most) == limits


@pytest.mark.parametrize(
    ("confirmed", "ledgers", "held", "end"),
    [
        # The last ledger is written to: its statistics are 0 until it is closed.
        ("7:2", [(7, 0), (5, 4)], [(5, 4), (7, 3)], (7, 2)),
        # After a restart the last ledger has nothing yet.
        ("5:3", [(5, 4), (7, 0)], [(5, 4), (7, 0)], (5, 3)),
        ("7:-1", [(5, 4), (7, 0)], [(5, 4), (7, 0)], (5, 3)),
        # Nobody has confirmed the entries of the last.
        ("5:3", [(5, 4), (7, 2)], [(5, 4), (7, 0)], (5, 3)),
        ("6:-1", [(6, 0)], [(6, 0)], NOWHERE),
    ],
)
def test_statistics_end_with_the_last_entry_that_is_confirmed(
    confirmed: str, ledgers: list[tuple[int, int]], held: list[tuple[int, int]], end: tuple[int, int]
) -> None:
    told = [{"ledgerId": number, "entries": entries} for number, entries in ledgers]
    state = state_of("t", 3, {"lastConfirmedEntry": confirmed, "ledgers": told})
    assert state == PartitionState("t", 3, tuple(Ledger(*ledger) for ledger in held), Position(*end))
