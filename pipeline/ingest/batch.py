"""Ingest as a batch: all there is in a source; of files in steps, so that a crash costs one.

A step is as large as the cluster can read at a time, and no larger.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from pipeline.core.errors import PipelineError
from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.write import IngestCounts, Input, write
from pipeline.running.session import cores
from pipeline.sources import pulsar
from pipeline.sources.files import EventFile, EventFiles, find
from pipeline.store.sinks import open_store

# About five million events; what a step has staged is on the disk twice.
STEP_BYTES: Final = 256 * 1024 * 1024
# A compressed file is read by one task, so that a step of a cluster has at least so many files for each core.
STEP_FILES_A_CORE: Final = 3


def ingest(spark: SparkSession, settings: IngestSettings, say: Callable[[str], None]) -> IngestCounts:
    """Take every event of the source that the tables do not have yet; raises PipelineError if it holds none.

    Records that are no event are set aside even then.
    """
    store = open_store(spark, settings.common)
    started, counts = datetime.now(UTC), IngestCounts()
    for label, given in _steps(spark, settings):
        begin = time.monotonic()
        of_step = write(store, given, started)
        counts += of_step
        say(f"{label}: {of_step}; {of_step.read / max(time.monotonic() - begin, 1e-9):.0f} rows/s")
    if counts.kept + counts.duplicates == 0:
        raise PipelineError(
            f"--source: got {counts.read} lines and no event among them ({counts.faults}), expected events{counts.newer}"
        )
    return counts


def _steps(spark: SparkSession, settings: IngestSettings) -> Iterator[tuple[str, Input]]:
    if settings.topic is not None:
        yield settings.topic.topic, pulsar.Messages(pulsar.batch(spark, settings.topic))
        return
    files = find(spark, settings.source)
    done = 0
    for step in _portions(files, STEP_FILES_A_CORE * cores(spark)):
        done += len(step)
        paths = tuple(file.path for file in step)
        yield f"{done} of {len(files)} files", EventFiles.of(spark, paths, skip_gone=settings.on_data_loss == "warn")


def _portions(files: Sequence[EventFile], least_files: int) -> Iterator[list[EventFile]]:
    portion: list[EventFile] = []
    size = 0
    for file in files:
        if portion and len(portion) >= least_files and size + file.bytes > STEP_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(file)
        size += file.bytes
    yield portion
