"""Where synthetic events go: the table `events` at once, or compressed JSON lines as a proxy writes them.

Rule: nothing is written into what is there already: a mixture of two traces would be neither.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.pipeline.generate.chunk import boot_id, chunk_events, proxy_id
from benchmarks.pipeline.generate.settings import GenerateSettings
from eventlog.files import FileSettings, FileStore
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.schema import event_schema
from pipeline.transforms.events import with_date

__all__ = ["events_frame", "write_files"]

BATCH: Final = 50_000
LINES_A_MEMBER: Final = 10_000
MIB: Final = 1024 * 1024
FILE_BYTES: Final = 64 * MIB

Note = Callable[[int], None]


def write_files(settings: GenerateSettings, directory: Path, note: Note) -> int:
    """Write event files, those of each proxy as the proxy would; gives the number of events. Raises PipelineError."""
    _empty(directory)
    stores = {
        proxy: FileStore(
            FileSettings(directory, proxy_id(proxy), boot_id(settings, proxy), FILE_BYTES, float("inf"), 0), _ignore
        )
        for proxy in range(settings.proxies)
    }
    written = 0
    for chunk in settings.chunks():
        for lines in _lines(chunk_events(settings, chunk)):
            stores[chunk.proxy].write(lines, 0.0)
            written += len(lines)
        note(written)
    for store in stores.values():
        store.close()
    return written


def events_frame(spark: SparkSession, settings: GenerateSettings) -> DataFrame:
    """Return the table `events`, made in Spark's workers, a chunk at a time."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from chunk_events(settings, chunks[number]).to_batches(max_chunksize=BATCH)

    chunks = settings.chunks()
    numbers = spark.range(len(chunks), numPartitions=len(chunks))
    return with_date(numbers.mapInArrow(make, event_schema()))


def _lines(events: pa.Table) -> Iterator[list[bytes]]:
    for batch in events.to_batches(max_chunksize=LINES_A_MEMBER):
        rows = batch.to_pylist()
        yield [json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows]


def _empty(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = any(directory.iterdir())
    except OSError as error:
        raise PipelineError(f"--out: {directory} cannot be written: {error.strerror}", ExitCode.FAILED) from error
    if found:
        raise PipelineError(f"--out: found {directory} not empty, expected a new or an empty directory")
    return directory


def _ignore(_: str) -> None:
    """Do nothing: nobody needs to hear of a finished file."""
