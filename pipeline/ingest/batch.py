"""Ingest as a batch: all there is in a source, in steps of bounded size, so that a crash costs one step."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from pipeline.ingest.settings import IngestSettings
from pipeline.ingest.write import Books, Rules, write
from pipeline.sinks import open_store
from pipeline.sources.files import EventFile, EventFiles, find

__all__ = ["ingest", "progress"]

# About five million events; what a step has staged is on the disk twice.
STEP_BYTES: Final = 256 * 1024 * 1024


def progress(text: str) -> None:
    """Show where a long job is."""
    print(text, file=sys.stderr, flush=True)


def ingest(spark: SparkSession, settings: IngestSettings, say: Callable[[str], None] = progress) -> Books:
    """Take every event of the source that the tables do not have yet; raises PipelineError if there is none."""
    store = open_store(spark, settings.common)
    files = find(spark, settings.source)
    started, done, books = datetime.now(UTC), 0, Books()
    for step in _steps(files):
        begin = time.monotonic()
        rules = Rules(started, require_events=books.kept + books.duplicates == 0)
        given = EventFiles(spark, tuple(file.path for file in step))
        books_of_step = write(store, given, rules)
        assert books_of_step is not None
        books, done = books + books_of_step, done + len(step)
        rate = books_of_step.read / max(time.monotonic() - begin, 1e-9)
        say(f"{done} of {len(files)} files: {books_of_step}; {rate:.0f} rows/s")
    return books


def _steps(files: Sequence[EventFile]) -> Iterator[list[EventFile]]:
    step: list[EventFile] = []
    size = 0
    for file in files:
        if step and size + file.bytes > STEP_BYTES:
            yield step
            step, size = [], 0
        step.append(file)
        size += file.bytes
    yield step
