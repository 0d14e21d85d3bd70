"""Ingest as a stream: what came since the checkpoint, once or again and again until it is told to stop.

Exactly once: Spark's checkpoint says what a batch consists of, and the events of a batch that comes again after a crash
are known by their keys; a table of Delta knows the number of the batch, too. Late is what is older than the newest
event by more than `--late-after`; the newest is that of the tables before the batch, so that a batch that comes again
is judged the same.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.core.tables.events import EVENTS
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.write import IngestCounts, Input, write
from pipeline.running.stopping import Batches
from pipeline.sources import pulsar
from pipeline.sources.files import EventFiles, names, passed_by, paths_of
from pipeline.store.protocol import Batch
from pipeline.store.sinks import open_store

NAME: Final = "ingest"
# How often a stream that goes on looks for files that are too old for it: it lists the directory and the checkpoint.
LOOK_SECONDS: Final = 3_600.0


def follow(spark: SparkSession, settings: IngestSettings, say: Callable[[str], None], stop: Event) -> IngestCounts:
    """Take what comes until it is all there was (`once`), or until `stop`; raises PipelineError."""
    stream = _Stream(spark, settings, say)
    query = stream.start()
    try:
        stream.batches.follow(query, stop, lambda: stream.look_for_passed_by(LOOK_SECONDS))
    except StreamingQueryException as error:
        if stream.batches.failure is not None:
            raise stream.batches.failure from error
        raise pulsar.explain(error) or error from error
    stream.look_for_passed_by()
    return replace(stream.counts, passed_by=stream.passed_by)


class _Stream:
    """A run of a stream: its counts and its batches."""

    def __init__(self, spark: SparkSession, settings: IngestSettings, say: Callable[[str], None]) -> None:
        self.counts = IngestCounts()
        self.passed_by = 0
        self.batches = Batches(self._take)
        self._spark = spark
        self._settings = settings
        self._say = say
        self._skip_gone = settings.on_data_loss == "warn"
        self._store = open_store(spark, settings.common)
        rows = self._store.read(EVENTS)
        self._newest_us: int = 0 if rows is None else rows.agg(F.max("ts_us")).collect()[0][0] or 0
        self._id = ""
        self._looked = time.monotonic()

    def start(self) -> StreamingQuery:
        settings = self._settings
        if settings.topic is not None:
            source = pulsar.stream(self._spark, settings.topic)
        else:
            age = f"{settings.max_file_age_us // 1000}ms"
            source = names(self._spark, settings.source, settings.max_files, age, skip_gone=self._skip_gone)
        writer = source.writeStream.queryName(NAME).foreachBatch(self.batches.take)
        writer = writer.option("checkpointLocation", settings.checkpoint)
        if settings.mode == "once":
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger_us // 1000} milliseconds").start()

    def look_for_passed_by(self, every_seconds: float = 0.0) -> None:
        """Count the files that are too old to be taken, unless that was done within this time; warn of more of them."""
        now = time.monotonic()
        settings = self._settings
        if settings.topic is not None or now - self._looked < every_seconds:
            return
        self._looked = now
        number = passed_by(self._spark, settings.source, settings.checkpoint, settings.max_file_age_us)
        if number > self.passed_by:
            print(
                f"warning: {number} event files passed by: they came after files that are newer by more than"
                " --max-file-age; ingest them as a batch (without --once and --trigger), or make it longer",
                file=sys.stderr,
            )
        self.passed_by = number

    def _take(self, frame: DataFrame, number: int) -> None:
        begin, now = time.monotonic(), datetime.now(UTC)
        # A proxy whose clock is ahead must not make all others late.
        newest_us = min(self._newest_us, int(now.timestamp() * 1_000_000))
        late_before_us = newest_us - self._settings.late_after_us if newest_us else None
        counts = write(self._store, self._input(frame), now, late_before_us, Batch(self._query_id(), number))
        self.counts += counts
        self._newest_us = max(self._newest_us, counts.newest_us or 0)
        self._say(f"batch {number}: {counts}; {counts.read / max(time.monotonic() - begin, 1e-9):.0f} rows/s")

    def _input(self, frame: DataFrame) -> Input:
        if self._settings.topic is not None:
            return pulsar.Messages(frame)
        return EventFiles.of(self._spark, paths_of(frame), skip_gone=self._skip_gone)

    def _query_id(self) -> str:
        # The checkpoint's id: a new checkpoint numbers its batches anew.
        if not self._id:
            self._id = next(str(query.id) for query in self._spark.streams.active if query.name == NAME)
        return self._id
