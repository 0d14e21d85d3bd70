"""What one task makes of what a reader brings; the reader is made up, the time virtual."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.sources.pulsar import reading
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.offsets import Ledger, PartitionState, Position, Range
from pipeline.sources.pulsar.options import PulsarSettings
from pipeline.sources.pulsar.source import SCHEMA

SETTINGS = PulsarSettings("pulsar://a", "persistent://t/n/x", "http://a", read_timeout_seconds=5)
PART = Range("t", 2, Position(5, -1), Position(5, 2), (5,))


@dataclass
class Message:
    ledger: int
    entry: int
    index: int = -1
    content: bytes = b"{}"
    null: bool = False

    def message_id(self) -> pulsar.MessageId:
        return pulsar.MessageId(-1, self.ledger, self.entry, self.index)

    def data(self) -> bytes:
        return self.content

    def has_null_value(self) -> bool:
        return self.null

    def publish_timestamp(self) -> int:
        return 1000 + self.entry

    def partition_key(self) -> str:
        return "k" if self.entry else ""


@dataclass
class Reader:
    """Brings its messages, then nothing; each wait for one, and each None, takes a second of virtual time."""

    messages: list[Message | None]
    says_more: bool = False
    now: float = 0.0

    def read_next(self, timeout_millis: int) -> Message:
        message = self.messages.pop(0) if self.messages else None
        if message is None:
            self.now += timeout_millis / 1000
            raise pulsar.Timeout
        return message

    def has_message_available(self) -> bool:
        return bool(self.messages) or self.says_more


class Topic:
    def __init__(self, *ledgers: Ledger) -> None:
        self._ledgers = ledgers

    def states(self) -> dict[str, PartitionState]:
        return {"t": PartitionState("t", 2, self._ledgers, Position(9, 9))}


def read(monkeypatch: pytest.MonkeyPatch, reader: Reader, *ledgers: Ledger, part: Range = PART) -> list[dict[str, Any]]:
    @contextmanager
    def give(*_: object) -> Iterator[Reader]:
        yield reader

    monkeypatch.setattr(reading, "connected", give)
    monkeypatch.setattr(reading, "reading", lambda *_: reader)
    monkeypatch.setattr(reading, "open_catalog", lambda _: Topic(*ledgers))
    batches = list(reading.read_range(SETTINGS, part, lambda: reader.now))
    return [row for batch in batches for row in batch.to_pylist()]


def test_range_ends_with_its_last_entry_even_if_more_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([Message(5, 0), Message(5, 1, 0), Message(5, 1, 1), Message(5, 2), Message(5, 3)])
    rows = read(monkeypatch, reader)
    assert [(row["entry_id"], row["batch_index"], row["key"]) for row in rows] == [
        (0, -1, None),
        (1, 0, "k"),
        (1, 1, "k"),
        (2, -1, "k"),
    ]
    assert {(row["topic"], row["partition"], row["ledger_id"]) for row in rows} == {("t", 2, 5)}
    assert rows[3]["publish_time"].timestamp() == pytest.approx(1.002)


def test_range_ends_at_the_end_of_the_topic_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([Message(5, 0), Message(5, 2, 0), Message(5, 2, 1)])
    assert len(read(monkeypatch, reader)) == 3
    assert reader.now == 0


def test_broker_that_brings_nothing_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([Message(5, 0)], says_more=True)
    with pytest.raises(
        TopicError, match="t: the broker brought nothing for 5 s after 5:0, expected messages up to 5:2"
    ):
        read(monkeypatch, reader)
    assert reader.now == 5


def test_tombstones_are_no_events_but_empty_messages_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader([Message(5, 0, content=b"", null=True), Message(5, 1, content=b""), Message(5, 2)])
    assert [row["value"] for row in read(monkeypatch, reader)] == [b"", b"{}"]


def test_ledger_that_is_trimmed_before_the_task_comes_to_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Range("t", 2, Position(5, -1), Position(7, 0), (5, 6, 7))
    reader = Reader([Message(5, 0), Message(7, 0)])
    with pytest.raises(DataLossError, match=r"t: ledgers \[6\] were trimmed while they were to be read"):
        read(monkeypatch, reader, Ledger(7, 1), part=part)


def test_batches_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    monkeypatch.setattr(reading, "BATCH_BYTES", 10)
    batcher = reading.Batcher("t", 0)
    sizes = []
    for length in (1, 1, 1, 10, 4, 4, 4):
        batcher.add(b"x" * length, 1, 1, -1, 0, "")
        if batcher.is_full:
            sizes += [batch.num_rows for batch in batcher.take()]
    assert sizes == [3, 1, 3]
    assert list(batcher.take()) == []


def test_batches_have_the_columns_that_spark_is_told() -> None:
    assert pa.schema(to_arrow_schema(SCHEMA, timezone="UTC")) == reading.SCHEMA
