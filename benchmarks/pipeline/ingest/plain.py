"""The plain process: what one would write without Spark.

A reader for each partition, pyarrow's JSON parser with the schema of events, one Parquet file each. This process checks
nothing and looks for no duplicates, and a crash loses its place; `ingest` does all of that, and keeps its place.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.pipeline.ingest import read_settings
from eventlog.schema import FIELDS

_BATCH_BYTES: Final = 8 << 20
_TYPES: Final = {
    "string": pa.string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
_SCHEMA: Final = pa.schema([(field.name, _TYPES[field.type]) for field in FIELDS])


class Engine:
    """A single thread of Python; the client's library and pyarrow have theirs besides."""

    def __init__(self, source: Path, out: Path) -> None:
        self._tables = out / "tables"
        self._topic = read_settings(source)
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self._client = pulsar.Client(self._topic.service_url, logger=logger)

    def run(self) -> None:
        """Read the topic from its beginning."""
        shutil.rmtree(self._tables, ignore_errors=True)
        events = self._tables / "events"
        events.mkdir(parents=True)
        options = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
        for number, name in enumerate(self._client.get_topic_partitions(self._topic.topic)):
            with pq.ParquetWriter(events / f"{number}.parquet", _SCHEMA, compression="zstd") as writer:
                for text in _texts(self._client, name):
                    writer.write_table(pj.read_json(pa.BufferReader(text), parse_options=options))

    def close(self) -> None:
        """End the client."""
        self._client.close()


def _texts(client: pulsar.Client, name: str) -> Iterator[bytes]:
    reader = client.create_reader(name, pulsar.MessageId.earliest, receiver_queue_size=1000)
    lines: list[bytes] = []
    size = 0
    while reader.has_message_available():
        lines.append(reader.read_next().data())
        size += len(lines[-1])
        if size >= _BATCH_BYTES:
            yield b"\n".join(lines)
            lines, size = [], 0
    if lines:
        yield b"\n".join(lines)
    reader.close()
