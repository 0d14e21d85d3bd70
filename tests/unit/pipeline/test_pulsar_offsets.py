"""How far a batch goes, worked out by hand; what streams do over time: tests/property."""

import pytest

from pipeline.sources.pulsar.offsets import Ledger, Mark, PartitionState, Position, decode, encode, next_marks


def test_offset_is_written_the_same_whatever_the_order() -> None:
    marks = {"b": Mark(Position(1, 2)), "a": Mark(Position(3, 4), 8)}
    assert list(encode(marks).items()) == [("a", [3, 4, 8]), ("b", [1, 2, -1])]
    assert decode(encode(marks)) == marks


@pytest.mark.parametrize(
    ("unread", "most", "read"),
    [
        ({"a": 30, "b": 10}, 20, {"a": 15, "b": 5}),
        # Every partition goes on by an entry at least.
        ({"a": 1000, "b": 1}, 10, {"a": 9, "b": 1}),
        ({"a": 9, "b": 1, "c": 1}, 3, {"a": 1, "b": 1, "c": 1}),
        ({"a": 3, "b": 4}, 7, {"a": 3, "b": 4}),
        ({"a": 3, "b": 0}, 7, {"a": 3, "b": 0}),
    ],
)
def test_limit_is_shared_by_what_each_partition_has(unread: dict[str, int], most: int, read: dict[str, int]) -> None:
    states = {name: PartitionState(name, (Ledger(5, count),), Position(5, count - 1)) for name, count in unread.items()}
    begun = {name: Mark(Position(5, -1)) for name in unread}
    assert {name: mark.position.entry + 1 for name, mark in next_marks(states, begun, most).items()} == read


def test_what_was_read_to_the_end_may_go() -> None:
    trimmed = PartitionState("t", (Ledger(7, 0),), Position(5, 3))
    assert not trimmed.lost(Mark(Position(5, 3)))
    assert trimmed.lost(Mark(Position(5, 2)))
