"""The data source `pulsar_events` of Spark: a topic of Pulsar as a stream.

Rules: an offset is where each partition stands (`offsets`), so that a batch that is replayed reads the same entries.
A loss is an error, or by option a warning. Partitions that are added later are read from their beginning.
"""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pipeline.sources.pulsar.cluster import Cluster, warn
from pipeline.sources.pulsar.errors import DataLossError, TopicError
from pipeline.sources.pulsar.offsets import NOWHERE, Mark, Marks, States, decode, encode, next_marks, ranges
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

    def streamReader(self, schema: StructType) -> "EventsStreamReader":
        return EventsStreamReader(self._settings)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plan and read the batches of a stream."""

    def __init__(self, settings: PulsarSettings, cluster: Cluster | None = None) -> None:
        super().__init__()
        self._settings = settings
        self._given = cluster
        self._target: States | None = None
        self._latest: dict[str, Mark] | None = None

    @property
    def _cluster(self) -> Cluster:
        # Made when it is asked for: tasks get a copy of this object, and need none.
        if self._given is None:
            self._given = Cluster(self._settings)
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

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what is there now for all there is."""
        self._target = self._cluster.states()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the batch that begins at `start`, bounded by entries, of which Spark has no limit."""
        states = self._target if self._target is not None else self._cluster.states()
        self._latest = {name: Mark(state.end) for name, state in states.items()}
        marks = _marks(start)
        if self._target is None:
            _require_partitions(self._settings, marks, states)
        _require_kept(self._settings, marks, states)
        return encode(next_marks(states, marks, self._settings.max_entries))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the topic, as it was last seen, for Spark's progress reports."""
        return None if self._latest is None else encode(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plan one task for each partition of which the batch has anything."""
        if start == end:
            return []
        # Asked anew: a batch that is replayed after days may find its ledgers gone.
        states = self._cluster.states()
        first, last = _marks(start), _marks(end)
        _require_partitions(self._settings, first, states)
        _require_kept(self._settings, {name: mark for name, mark in first.items() if last[name] != mark}, states)
        return [InputPartition(part) for part in ranges(first, last, states)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, in a task."""
        # Without a partition to read, Spark makes up one of nothing.
        if partition.value is not None:
            yield from read_range(self._settings, partition.value)


def _marks(offset: dict[str, Any]) -> dict[str, Mark]:
    try:
        return decode(offset)
    except (TypeError, ValueError):
        raise TopicError("the checkpoint is of another source: begin with a new --checkpoint") from None


def _require_partitions(settings: PulsarSettings, marks: Marks, states: States) -> None:
    """Raise TopicError if a partition of `marks` is gone."""
    if gone := sorted(marks.keys() - states.keys()):
        raise TopicError(
            f"{settings.topic}: the checkpoint knows partitions that the topic does not have ({gone[0]}):"
            " was it deleted and created anew? begin with a new --checkpoint"
        )


def _require_kept(settings: PulsarSettings, marks: Marks, states: States) -> None:
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
        warn(what)
