"""The data source `pulsar_events` of Spark: a topic of Pulsar as a batch or as a stream.

Rules: an offset is where each partition stands (`offsets`), so that a batch that is replayed reads the same entries.
A loss is an error, or by option a warning and a gap that the offset counts. Partitions that are added later are
read from their beginning.
"""

import json
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.sources.pulsar.catalog import Catalog, open_catalog
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.offsets import (
    NOWHERE,
    Mark,
    Marks,
    PartitionState,
    States,
    decode,
    encode,
    entry_limits,
    next_mark,
    ranges,
)
from pipeline.sources.pulsar.options import PulsarSettings, from_spark
from pipeline.sources.pulsar.reading import SCHEMA as READ
from pipeline.sources.pulsar.reading import read_range

FORMAT = "pulsar_events"
SCHEMA = from_arrow_schema(READ)


class EventsSource(DataSource):
    """Say what the source is called, what its rows are, and who reads it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._settings = from_spark(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "EventsReader":
        return EventsReader(self._settings)

    def streamReader(self, schema: StructType) -> "EventsStreamReader":
        return EventsStreamReader(self._settings)


def initial_marks(settings: PulsarSettings, catalog: Catalog, states: States) -> dict[str, Mark]:
    """Return where to begin: raises TopicError."""
    if settings.start == "earliest":
        return {name: state.mark(state.beginning) for name, state in states.items()}
    if settings.start == "latest":
        return {name: state.mark(state.end) for name, state in states.items()}
    return {name: states[name].mark(at) for name, at in catalog.since(states, int(settings.start)).items()}


def window_of(settings: PulsarSettings, catalog: Catalog, states: States) -> str:
    """Return all there is from `start` to the end as it is now, as text; raises TopicError."""
    start = encode(initial_marks(settings, catalog, states))
    return json.dumps([start, encode({name: Mark(state.end) for name, state in states.items()})])


def require_partitions(settings: PulsarSettings, marks: Marks, states: States) -> None:
    """Raise TopicError if a partition of `marks` is gone."""
    if gone := sorted(marks.keys() - states.keys()):
        raise TopicError(
            f"{settings.topic}: the checkpoint knows partitions that the topic does not have ({gone[0]}):"
            " was it deleted and created anew? begin with a new --checkpoint"
        )


def require_kept(settings: PulsarSettings, marks: Marks, states: States) -> None:
    """Raise DataLossError, or warn, if what follows one of `marks` may be gone."""
    for name, mark in marks.items():
        if not (name in states and states[name].lost(mark)):
            continue
        first = states[name].beginning
        rest = f"the first left is in ledger {first.ledger}" if first != NOWHERE else "none are left"
        what = (
            f"{name}: events after {mark.position} are gone, {rest}:"
            " they were trimmed before they were read, or the topic was deleted and created anew"
        )
        if settings.on_data_loss == "fail":
            raise DataLossError(
                f"{what}; keep messages longer (retention), or go on without them with --on-data-loss warn"
            )
        print(f"warning: {what}", file=sys.stderr, flush=True)


class _TaskReader:
    """The part of both readers that runs in a task."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without a partition to read, Spark makes up one of nothing.
        if partition.value is not None:
            yield from read_range(self._settings, partition.value)


class EventsReader(_TaskReader, DataSourceReader):
    """Read from `start` to what is the end when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """Plan one task for each partition that holds anything."""
        catalog = open_catalog(self._settings)
        states = catalog.states()
        window = self._settings.window or window_of(self._settings, catalog, states)
        start, end = map(decode, json.loads(window))
        require_partitions(self._settings, start, states)
        require_kept(self._settings, start, states)
        return [InputPartition(part) for part in ranges(start, end, states)]


class EventsStreamReader(_TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan and read the batches of a stream."""

    def __init__(self, settings: PulsarSettings, catalog: Catalog | None = None) -> None:
        super().__init__(settings)
        self._given = catalog
        self._target: dict[str, PartitionState] | None = None
        self._latest: dict[str, Mark] | None = None

    @property
    def _catalog(self) -> Catalog:
        # Made when it is asked for: tasks get a copy of this object, and need none.
        if self._given is None:
            self._given = open_catalog(self._settings)
        return self._given

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what only the driver needs."""
        return {**self.__dict__, "_given": None, "_target": None, "_latest": None}

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset with which a stream without a checkpoint begins: nowhere in no partition.

        Spark does not note it down, and asks again when the first batch comes again after a crash. So where to begin is
        the end of that batch, which is noted down, and which reads nothing.
        """
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_events) if self._settings.max_events else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all there is."""
        self._target = self._catalog.states()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`."""
        states = self._target if self._target is not None else self._catalog.states()
        self._latest = {name: Mark(state.end) for name, state in states.items()}
        marks = decode(start)
        if self._target is None:
            require_partitions(self._settings, marks, states)
        if not marks:
            return encode(initial_marks(self._settings, self._catalog, states))
        require_kept(self._settings, marks, states)
        limits = self._limits(marks, states, limit)
        later = {name: next_mark(state, marks.get(name), limits.get(name)) for name, state in states.items()}
        return encode(marks | later)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the topic, as it was last seen, for Spark's progress reports."""
        return None if self._latest is None else encode(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan one task for each partition of which the batch has anything."""
        if start == end:
            return []
        # Asked anew: a batch that is replayed after days may find its ledgers gone.
        states = self._catalog.states()
        first, last = decode(start), decode(end)
        require_partitions(self._settings, first, states)
        moving = {name: mark for name, mark in first.items() if last[name].gaps == mark.gaps and last[name] != mark}
        require_kept(self._settings, moving, states)
        return [InputPartition(part) for part in ranges(first, last, states)]

    def _limits(self, marks: Marks, states: States, limit: ReadLimit) -> dict[str, int]:
        if not isinstance(limit, ReadMaxRows):
            return {}
        # Others are only put to a beginning.
        standing = {name: mark for name, mark in marks.items() if name in states and mark.position != NOWHERE}
        starts = {name: mark.position for name, mark in standing.items() if not states[name].lost(mark)}
        unread = {name: entries for name, start in starts.items() if (entries := states[name].entries_after(start))}
        if not unread:
            return {}
        rows = self._catalog.rows_per_entry(states, {name: starts[name] for name in unread}, limit.max_rows)
        return entry_limits(unread, rows, limit.max_rows)
