"""Measure `ingest` from a topic of a real broker, beside a plain process that reads the same events, in turns.

The broker runs on the same two cores and works for both. Spark's session is open, but its stream starts in each run.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from benchmarks.ladder.estimate import paired_ratio
from benchmarks.ladder.verdict import check
from benchmarks.pipeline.ingest import write_settings
from benchmarks.pipeline.rounds import Json, take_turns
from pipeline.sources.pulsar import PulsarSettings
from tests.pulsar.admin import Admin
from tests.pulsar.event_topics import EventTopic
from tests.pulsar.harness import run_broker
from tests.pulsar.standalone import Broker

ENGINES: Final = {"spark": "Spark, local[2]", "plain": "reader, Arrow, Parquet"}
MODULES: Final = {engine: f"benchmarks.pipeline.ingest.{engine}" for engine in ENGINES}
EVENTS: Final = 1_000_000
PARTITIONS: Final = 4
ROUNDS: Final = 3
IN_AN_ENTRY: Final = 500
LEAST_OF_PLAIN: Final = 0.8


def run(quick: bool) -> Json:
    """Measure; a quick run takes a tenth of the events, and one round."""
    events, rounds = (EVENTS // 10, 1) if quick else (EVENTS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as name:
        place = Path(name)
        (place / "broker").mkdir()
        with run_broker(place / "broker", os.environ) as broker:
            source = place / "topic.json"
            write_settings(_filled(broker, events), source)
            rows = take_turns(MODULES, ENGINES, source, place, rounds)
        lost = {engine: events - _count(place / engine) for engine in ENGINES}
    for row in rows.values():
        row["events_per_second"] = round(events / row["seconds"]["median"])
    # Speed, not time: events are equally many.
    ratio = paired_ratio(rows["plain"]["runs"], rows["spark"]["runs"])
    reached = check(f"speed, of {ENGINES['plain']}", "spark", ratio.median, LEAST_OF_PLAIN, at_most=False)
    return {
        "scenario": "pipeline-ingest",
        "title": f"ingest: {events:,} events of a topic with {PARTITIONS} partitions",
        "effort": {"events": events, "partitions": PARTITIONS, "rounds": rounds},
        "rows": {f"{name}, {events:,} events": row for name, row in rows.items()},
        "ratios": [{"over": "spark", "under": "plain", "events": events, **ratio.as_json()}],
        "checks": [reached, *(check("events lost", engine, abs(lost[engine]), 0) for engine in ENGINES)],
    }


def _filled(broker: Broker, events: int) -> PulsarSettings:
    namespace = f"public/bench-{uuid.uuid4().hex[:12]}"
    admin = Admin(broker.admin_url)
    admin.create_namespace(namespace)
    topic = EventTopic(broker.service_url, admin, namespace, PARTITIONS)
    for number in range(1, 5):
        topic.send(events * number // 4 - topic.sent, batch=IN_AN_ENTRY)
        print(f"  sent {topic.sent:,} of {events:,} events", flush=True)
    return topic.settings()


def _count(out: Path) -> int:
    return int(ds.dataset(out / "tables" / "events", format="parquet").count_rows())
