"""Ingest as a stream: what came since the checkpoint, once or again and again until it is told to stop.

Exactly once: Spark's checkpoint says what a batch consists of, and the events of a batch that comes again after a crash
are known by their keys.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.core.errors import PipelineError
from pipeline.core.tables.events import EVENTS
from pipeline.ingest.health import StreamHealth
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.write import IngestCounts, write
from pipeline.running.session import tasks_fail_quietly
from pipeline.running.stopping import Batches
from pipeline.sources import files, pulsar
from pipeline.store.tables import read
from pipeline.transforms.checks import OLDEST_VERSION
from pipeline.transforms.events import from_lines


def follow(
    spark: SparkSession,
    settings: IngestSettings,
    say: Callable[[str], None],
    stop: Event,
    health: StreamHealth | None = None,
) -> IngestCounts:
    """Take what comes: all there is, or with a trigger until `stop`; raises PipelineError."""
    health = health or StreamHealth()
    stream = _Stream(spark, settings, say, health)
    try:
        with tasks_fail_quietly(spark):
            query = stream.start()
            stream.batches.follow(query, stop, lambda: health.look(waiting=query.status["isDataAvailable"]))
    except StreamingQueryException as error:
        failure = stream.batches.failure or error
        if isinstance(failure, PipelineError):
            raise failure from error
        raise pulsar.explain(failure) or failure from error
    if settings.trigger_us is None:
        _require_events(spark, settings, stream.counts)
    return stream.counts


def _require_events(spark: SparkSession, settings: IngestSettings, counts: IngestCounts) -> None:
    """Raise PipelineError if there was something and no event among it, or never anything."""
    if counts.read and not counts.kept + counts.duplicates:
        raise PipelineError(
            f"--source: got {counts.read} lines and no event among them ({counts.faults}),"
            f" expected events of version {OLDEST_VERSION}{counts.newer}"
        )
    if not counts.read and read(spark, settings.common, EVENTS) is None:
        raise PipelineError(f"--source {settings.source}: found no events, expected *.jsonl.gz, *.jsonl or a topic")


class _Stream:
    """A run of a stream: its counts and its batches."""

    def __init__(
        self, spark: SparkSession, settings: IngestSettings, say: Callable[[str], None], health: StreamHealth
    ) -> None:
        self.counts = IngestCounts()
        self.batches = Batches(self._take)
        self._spark = spark
        self._settings = settings
        self._say = say
        self._health = health

    def start(self) -> StreamingQuery:
        settings = self._settings
        if settings.topic is not None:
            source = pulsar.lines(pulsar.stream(self._spark, settings.topic))
        else:
            source = files.lines(self._spark, settings.source, settings.max_files)
        writer = source.writeStream.foreachBatch(self.batches.take)
        writer = writer.option("checkpointLocation", settings.checkpoint)
        if settings.trigger_us is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger_us // 1000} milliseconds").start()

    def _take(self, lines: DataFrame, number: int) -> None:
        begin = time.monotonic()
        counts = write(self._spark, self._settings.common, from_lines(lines), datetime.now(UTC))
        seconds = max(time.monotonic() - begin, 1e-9)
        self.counts += counts
        self._health.took(counts, seconds)
        self._say(f"batch {number}: {counts}; {counts.read / seconds:.0f} rows/s")
        # Before Spark notes that the batch is done: who tries again is told the same.
        self.counts.refuse_more_than(self._settings.most_quarantined)
