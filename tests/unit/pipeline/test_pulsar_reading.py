"""What one task makes of what a reader brings; the reader is made up, the time virtual."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pulsar
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.sources.pulsar import reading
from pipeline.sources.pulsar.offsets import Position, Range
from pipeline.sources.pulsar.options import PulsarSettings
from pipeline.sources.pulsar.source import SCHEMA

SETTINGS = PulsarSettings("pulsar://a", "persistent://t/n/x", "http://a")
PART = Range("t", Position(5, -1), Position(5, 2), (5,))


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


@dataclass
class Reader:
    """Brings its messages, then nothing; each wait for one takes as long of virtual time. It is its own client."""

    messages: list[Message]
    now: float = 0.0

    def create_reader(self, *_: object, **__: object) -> "Reader":
        return self

    def read_next(self, timeout_millis: int) -> Message:
        if not self.messages:
            self.now += timeout_millis / 1000
            raise pulsar.Timeout
        return self.messages.pop(0)

    def has_message_available(self) -> bool:
        return bool(self.messages)


def read(monkeypatch: pytest.MonkeyPatch, *messages: Message) -> list[pa.RecordBatch]:
    """Give the batches of a range whose end the topic has; nobody waits for it."""
    reader = Reader([*messages])

    @contextmanager
    def give(*_: object) -> Iterator[Reader]:
        yield reader

    monkeypatch.setattr(reading, "connected", give)
    batches = list(reading.read_range(SETTINGS, PART, lambda: reader.now))
    assert reader.now == 0
    return batches


def values(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.to_pydict()["value"]]


def test_range_ends_at_the_end_of_the_topic_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    (batch,) = read(monkeypatch, Message(5, 0), Message(5, 2, 0), Message(5, 2, 1))
    assert batch.to_pydict() == {
        "value": [b"{}"] * 3,
        "topic": ["t"] * 3,
        "ledger_id": [5] * 3,
        "entry_id": [0, 2, 2],
    }


def test_tombstones_are_no_events_but_empty_messages_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, Message(5, 0, content=b"", null=True), Message(5, 1, content=b""), Message(5, 2))
    assert values(found) == [b"", b"{}"]


def test_batches_are_bounded_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BATCH_ROWS", 3)
    monkeypatch.setattr(reading, "BATCH_BYTES", 10)
    lengths = (1, 1, 1, 10, 4, 4, 4)
    found = read(monkeypatch, *(Message(5, 2, index, b"x" * length) for index, length in enumerate(lengths)))
    assert [batch.num_rows for batch in found] == [3, 1, 3]


def test_batches_have_the_columns_that_spark_is_told() -> None:
    assert pa.schema(to_arrow_schema(SCHEMA, timezone="UTC")) == reading.SCHEMA
