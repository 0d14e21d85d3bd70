"""Rows of the table `events` for tests of who cost how much: a test names only what its answer depends on."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from eventlog.schema import FIELDS
from pipeline.core.schema import table_schema
from pipeline.core.tables.events import EVENTS

NOON_US = 1_767_268_800_000_000  # 2026-01-01 12:00:00 UTC
SECOND_US = 1_000_000
NOTHING = {"string": "", "int16": 0, "int32": 0, "int64": 0, "bool": False}
USUAL: dict[str, Any] = {
    "schema_version": 1,
    "proxy_id": "p1",
    "boot_id": "b1",
    "kind": "get_topics",
    "tenant": "t",
    "namespace": "t/a",
    "principal": "alice",
    "client_version": "v1",
    "client_id": "c1",
    "group_size": 1,
    "carries_cost": True,
    "outcome": "ok",
}


def event(at_us: int = 0, **fields: Any) -> dict[str, Any]:
    """Make one event `at_us` after noon; what is not said is nothing, or null where that may be."""
    moment = datetime.fromtimestamp((NOON_US + at_us) / 1e6, UTC)
    blank = {field.name: None if field.nullable else NOTHING[field.type] for field in FIELDS}
    return blank | USUAL | {"ts_us": NOON_US + at_us, "date": moment.date(), "seq": at_us} | fields


def frame(spark: SparkSession, events: Iterable[dict[str, Any]]) -> DataFrame:
    """Make a frame with the columns of the table `events`."""
    names = [column.name for column in EVENTS.columns]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in events], table_schema(EVENTS))
