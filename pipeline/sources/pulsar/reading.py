"""The work of one task: the messages of a range, as Arrow batches.

Rules: a message of the range is given once or the task fails; it fails when a ledger is gone, and when the broker
brings nothing for `read_timeout_seconds`. Memory: the receiver queue (`receiver_queue` messages, and one entry more)
and one batch, of BATCH_ROWS rows or BATCH_BYTES and one message more.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pulsar
import pyarrow as pa

from pipeline.sources.pulsar.catalog import open_catalog
from pipeline.sources.pulsar.client import connected, message_id, reading
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.offsets import Range
from pipeline.sources.pulsar.options import PulsarSettings

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
_STEP_MILLIS: Final = 1000

SCHEMA: Final = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("ledger_id", pa.int64()),
        pa.field("entry_id", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("publish_time", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.string()),
    ]
)


class Batcher:
    """Gather messages of one partition into batches."""

    def __init__(self, name: str, index: int) -> None:
        self._name = name
        self._index = index
        self._clear()

    def _clear(self) -> None:
        self._values: list[bytes] = []
        self._ledgers: list[int] = []
        self._entries: list[int] = []
        self._batch_indexes: list[int] = []
        self._published: list[int] = []
        self._keys: list[str | None] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self._values) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, value: bytes, ledger: int, entry: int, batch_index: int, published_millis: int, key: str) -> None:
        self._values.append(value)
        self._ledgers.append(ledger)
        self._entries.append(entry)
        self._batch_indexes.append(batch_index)
        self._published.append(published_millis * 1000)
        self._keys.append(key or None)
        self._bytes += len(value)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yield what was gathered, if it is anything, and begin anew."""
        count = len(self._values)
        if count:
            columns = [
                self._values,
                pa.repeat(self._name, count),
                pa.repeat(pa.scalar(self._index, pa.int32()), count),
                self._ledgers,
                self._entries,
                self._batch_indexes,
                self._published,
                self._keys,
            ]
            arrays = [
                column if isinstance(column, pa.Array) else pa.array(column, field.type)
                for column, field in zip(columns, SCHEMA, strict=True)
            ]
            self._clear()
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def read_range(
    settings: PulsarSettings, part: Range, clock: Callable[[], float] = time.monotonic
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of `part` in their order; raises DataLossError, TopicError."""
    batcher = Batcher(part.name, part.index)
    seen: set[int] = set()
    with connected(settings) as client:
        reader = reading(client, part.name, message_id(part.start), settings)
        for message, place, (ledger, entry), published in _messages(reader, settings, part, clock):
            seen.add(ledger)
            value = message.data()
            # A null value is a tombstone for compaction, not an event.
            if not value and message.has_null_value():
                continue
            batcher.add(value, ledger, entry, place.batch_index(), published, message.partition_key())
            if batcher.is_full:
                yield from batcher.take()
    _check_all_seen(settings, part, seen)
    yield from batcher.take()


def _messages(
    reader: pulsar.Reader, settings: PulsarSettings, part: Range, clock: Callable[[], float]
) -> Iterator[tuple[Any, Any, tuple[int, int], int]]:
    """Yield the messages after `part.start` up to `part.end`, each with its id, its entry and time of publication."""
    end = part.end
    at: tuple[int, int] = part.start
    published = 0
    heard = clock()
    while True:
        try:
            message = reader.read_next(_STEP_MILLIS)
        except pulsar.Timeout:
            # Entries that are none of a producer's, such as marks of transactions, never come.
            if not reader.has_message_available():
                return
            if clock() - heard >= settings.read_timeout_seconds:
                silence = f"the broker brought nothing for {settings.read_timeout_seconds} s"
                raise TopicError(
                    f"{part.name}: {silence} after {at[0]}:{at[1]}, expected messages up to {end} (--read-timeout)"
                ) from None
            continue
        heard = clock()
        place = message.message_id()
        here = (place.ledger_id(), place.entry_id())
        if here > end:
            return
        if here != at:
            at = here
            published = message.publish_timestamp()
        yield message, place, at, published
        if here == end and not reader.has_message_available():
            return


def _check_all_seen(settings: PulsarSettings, part: Range, seen: set[int]) -> None:
    """Raise DataLossError if a ledger of the range brought nothing because it was trimmed meanwhile."""
    missing = set(part.ledgers) - seen
    if not missing or settings.on_data_loss == "warn":
        return
    state = open_catalog(settings).states().get(part.name)
    there = {ledger.id for ledger in state.ledgers or ()} if state else set()
    if gone := sorted(missing - there):
        raise DataLossError(
            f"{part.name}: ledgers {gone} were trimmed while they were to be read: keep messages longer (retention),"
            " or go on without them with --on-data-loss warn"
        )
