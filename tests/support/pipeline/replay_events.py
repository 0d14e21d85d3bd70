"""Events of topic-list requests for tests of the replay: whole rows of which a test names what matters to it."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eventlog.schema import FIELDS
from pipeline.core.options import CommonSettings
from pipeline.core.schema import event_schema
from pipeline.core.tables.events import EVENTS
from pipeline.store.tables import write_table
from pipeline.transforms.events import with_date

START_US = 1_700_000_000_000_000
SECOND_US = 1_000_000

USUAL: dict[str, Any] = {
    "schema_version": 1,
    "proxy_id": "p1",
    "boot_id": "b",
    "dropped_before": 0,
    "kind": "get_topics",
    "tenant": "t",
    "namespace": "t/n",
    "mode": "ALL",
    "broker": "b1:6650",
    "question_hash": "q",
    "client_id": "c",
    "principal": "role",
    "carries_cost": True,
    "coalesced": False,
    "heap_estimate_bytes": 2000,
    "heap_actual_bytes": 2000,
    "direct_bytes": 1000,
    "client_wait_us": 0,
    "group_wait_us": 0,
    "heap_wait_us": 0,
    "broker_wait_us": 0,
    "upstream_us": 5000,
    "heap_update_wait_us": 0,
    "read_us": 1000,
    "reader_wait_us": 0,
    "direct_wait_us": 0,
    "write_us": 2000,
    "total_us": 8000,
    "heap_queue_len": 0,
    "direct_queue_len": 0,
    "heap_used_bytes": 0,
    "direct_used_bytes": 0,
    "heap_limit_bytes": 100 << 20,
    "direct_limit_bytes": 100 << 20,
    "heap_queue_max": 10_000,
    "direct_queue_max": 10_000,
    "heap_timeout_ms": 25_000,
    "direct_timeout_ms": 25_000,
    "request_timeout_ms": 28_000,
    "max_outstanding_per_broker": 64,
    "fairness": "fifo",
    "key_cap_percent": 100,
    "coalescing": True,
    "outcome": "ok",
    "filtered": False,
    "hash_unchanged": False,
}
# Waits a second for heap, holds its estimate for one, has its answer read and waits for direct memory in one more, and
# leaves in one.
SLOW: dict[str, Any] = {
    "heap_wait_us": SECOND_US,
    "heap_estimate_bytes": 200,
    "upstream_us": SECOND_US,
    "read_us": SECOND_US // 2,
    "direct_wait_us": SECOND_US // 2,
    "direct_bytes": 600,
    "write_us": SECOND_US,
    "total_us": 4 * SECOND_US,
    "heap_held_us": 2 * SECOND_US,
    "heap_byte_us": 1000 * 2 * SECOND_US,
    "direct_held_us": SECOND_US,
    "direct_byte_us": 480 * SECOND_US,
}
REFUSED: dict[str, Any] = {
    "outcome": "timeout",
    "outcome_stage": "heap",
    "heap_actual_bytes": None,
    "direct_bytes": None,
    "upstream_us": None,
    "read_us": None,
    "write_us": None,
    "heap_wait_us": 25_000_000,
    "total_us": 25_000_000,
}


def requests(*some: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Make rows of events, numbered in their order; `at_us` counts from the start."""
    rows = []
    for number, named in enumerate(some):
        event: dict[str, Any] = {field.name: None for field in FIELDS} | USUAL | {"seq": number} | named
        event["ts_us"] = START_US + event.pop("at_us", 0)
        rows.append(tuple(event[field.name] for field in FIELDS))
    return rows


def frame(spark: SparkSession, *some: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(requests(*some), event_schema())


def store(spark: SparkSession, out: Path, *some: dict[str, Any]) -> CommonSettings:
    """Make these the table of events in a directory."""
    common = CommonSettings(str(out), None, {})
    write_table(common, EVENTS, with_date(frame(spark, *some)))
    return common


def storm(seed: int, count: int, proxies: int = 2, span_us: int = 1_000_000) -> Iterable[dict[str, Any]]:
    """Make requests of several proxies at random, of lists that fill a few MiB together."""
    chance = random.Random(seed)
    for number in range(count):
        size = chance.choice([20_000, 100_000, 400_000])
        client = chance.randrange(40)
        work = {
            # A calm recording would be no ground for advice.
            "heap_wait_us": 20_000 if number % 50 == 0 else 1,
            "upstream_us": chance.randrange(1000, 40_000),
            "read_us": 500,
            "write_us": chance.randrange(100, 50_000),
        }
        yield {
            "proxy_id": f"p{chance.randrange(proxies)}",
            "at_us": chance.randrange(span_us),
            "client_id": f"c{client}",
            "principal": f"r{client % 7}",
            "tenant": f"t{client % 3}",
            "namespace": f"t{client % 3}/n",
            "question_hash": f"q{chance.randrange(30)}-{size}",
            "heap_estimate_bytes": size // 2,
            "heap_actual_bytes": size,
            "direct_bytes": size // 2,
            "heap_held_us": work["upstream_us"] + work["read_us"],
            "heap_byte_us": size // 2 * work["upstream_us"] + size * work["read_us"],
            "direct_held_us": work["write_us"],
            "direct_byte_us": size // 2 * work["write_us"],
            "total_us": sum(work.values()),
            **work,
        }
