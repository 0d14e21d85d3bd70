"""Ingest from a topic beside a plain process: the same events, one after the other, in rounds.

The plain process is what one would write without Spark: a reader for each partition, pyarrow's JSON parser with the
schema of events, one Parquet file each. It checks nothing, looks for no duplicates, and a crash loses its place, all of
which `ingest` does. Spark's session is open and warm: a stream starts once, and the start is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pulsar
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.json as pj
import pyarrow.parquet as pq

from eventlog.schema import FIELDS
from pipeline.ingest import IngestSettings, ingest
from pipeline.options import CommonSettings
from pipeline.session import build_session
from pipeline.sources.pulsar import PulsarSettings
from tests.pulsar.admin import Admin
from tests.pulsar.event_topics import EventTopic
from tests.pulsar.harness import run_broker
from tests.pulsar.standalone import Broker

REQUIRED_RATIO: Final = 0.6
PARTITIONS: Final = 4
ROUNDS: Final = 3
_BATCH_BYTES: Final = 8 << 20
_TYPES: Final = {
    "string": pa.string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
}
_SCHEMA: Final = pa.schema([(field.name, _TYPES[field.type]) for field in FIELDS])


def plain(settings: PulsarSettings, directory: Path) -> None:
    """Read the topic into Parquet files, as a process of one's own would."""
    with _client(settings) as client:
        for number, name in enumerate(client.get_topic_partitions(settings.topic)):
            with pq.ParquetWriter(directory / f"{number}.parquet", _SCHEMA, compression="zstd") as writer:
                for text in _texts(client, name):
                    options = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
                    writer.write_table(pj.read_json(pa.BufferReader(text), parse_options=options))


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


@contextmanager
def _client(settings: PulsarSettings) -> Iterator[pulsar.Client]:
    client = pulsar.Client(settings.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def measure(broker: Broker, events: int, directory: Path) -> dict[str, object]:
    """Give events per second of both, the ratio, and what Spark's start cost besides."""
    namespace = f"public/bench-{uuid.uuid4().hex[:12]}"
    admin = Admin(broker.admin_url)
    admin.create_namespace(namespace)
    topic = EventTopic(broker.service_url, admin, namespace, PARTITIONS)
    topic.send(events, batch=500)
    settings = topic.settings()
    began = time.monotonic()
    spark = build_session("bench-topic", "local[2]", {"spark.driver.memory": "2g"})
    start_seconds = time.monotonic() - began

    def by_spark(out: Path) -> None:
        common = CommonSettings(str(out), "parquet", "local[2]", {})
        told = IngestSettings(common, settings.topic, "once", f"{out}/_checkpoint", topic=settings)
        ingest(spark, told, say=lambda _: None)

    ways: dict[str, Callable[[Path], None]] = {
        "ingest": by_spark,
        "plain": lambda out: plain(settings, out),
    }
    try:
        rates = _rounds(ways, events, directory)
    finally:
        spark.stop()
    ratios = [mine / other for mine, other in zip(rates["ingest"], rates["plain"], strict=True)]
    return {
        "events": events,
        "partitions": PARTITIONS,
        "events_per_second": {name: round(statistics.median(found)) for name, found in rates.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "required_ratio": REQUIRED_RATIO,
        "session_start_seconds": round(start_seconds, 1),
    }


def _rounds(ways: dict[str, Callable[[Path], None]], events: int, directory: Path) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    # The first round warms both and does not count.
    for round_number in range(ROUNDS + 1):
        for name, run in ways.items():
            out = directory / f"{name}-{round_number}"
            out.mkdir()
            began = time.monotonic()
            run(out)
            seconds = time.monotonic() - began
            tables = out / "events" if name == "ingest" else out
            got = ds.dataset(tables, format="parquet").count_rows()
            if got != events:
                raise SystemExit(f"{name}: got {got} events, expected {events}")
            shutil.rmtree(out)
            print(f"  round {round_number} {name}: {events / seconds:,.0f} events/s", flush=True)
            if round_number:
                rates[name].append(events / seconds)
    return rates


def main() -> int:
    """Run the comparison and print its result as JSON; 1 if the ratio was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.topic", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="bench-topic-") as name:
        directory = Path(name)
        with run_broker(directory, os.environ) as broker:
            result = measure(broker, events, directory)
    print(json.dumps(result, indent=1))
    ratio = result["ratio"]
    assert isinstance(ratio, float)
    return int(ratio < REQUIRED_RATIO)


if __name__ == "__main__":
    raise SystemExit(main())
