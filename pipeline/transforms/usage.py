"""Who cost how much: events to the tables `usage`, `waits`, `top_costs` and `sharing`.

Rule: the same functions serve batches and streams. What they make of disjoint sets of events adds up to what they make
of all of them (`add_usage`, `add_waits`), so a stream keeps no state. A tenant is the first part of its namespace, and
is put in last: a shorter key is less to shuffle. Decisions of overload control are nobody's request: `slowed` has them.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.core.tables.usage import SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.transforms.histograms import bucket

__all__ = [
    "DIMENSIONS",
    "MEASURES",
    "WAITS_SECONDS",
    "add_usage",
    "add_waits",
    "asked_for",
    "sharing",
    "top_costs",
    "usage",
    "waits",
]

DIMENSIONS: Final = ("tenant", "namespace", "principal", "client_version")
MEASURES: Final = (
    "heap_byte_seconds",
    "direct_byte_seconds",
    "watch_direct_byte_seconds",
    "requests",
    "refused",
    "topics",
    "response_bytes",
    "watch_bytes",
    "memory_wait_seconds",
)
MICROS: Final = 1_000_000
# Histograms are looked at by hours; by minutes there would be a row for every second request.
WAITS_SECONDS: Final = 3600
_WHO: Final = ("namespace", "principal", "client_version")
_REFUSALS: Final = tuple(
    name
    for name in (column.name for column in USAGE.columns)
    if name.startswith(("timeout_", "queue_full_", "oversize"))
)
_SUMMED: Final = tuple(
    column.name
    for column in USAGE.columns
    if column.type in ("int64", "double") and column.name != "part" and not column.name.startswith("max_")
)
_LARGEST: Final = tuple(column.name for column in USAGE.columns if column.name.startswith("max_"))


def asked_for(events: DataFrame) -> DataFrame:
    """Choose topic lists and watch frames: what clients caused."""
    return events.where(F.col("kind") != "throttle")


def usage(events: DataFrame, window_seconds: int, part: int = 0) -> DataFrame:
    """Give the table `usage` of these events, one row for each window and who asked."""
    counted = {name: F.count(F.when(condition, 1)) for name, condition in _counted().items()}
    summed = {name: F.coalesce(F.sum(value), F.lit(0)) for name, value in _summed().items()}
    seconds = {name: F.coalesce(F.sum(value.cast("double")), F.lit(0.0)) for name, value in _micros().items()}
    largest = {name: F.coalesce(F.max(value), F.lit(0)).cast("long") for name, value in _largest().items()}
    found = (
        asked_for(events)
        .groupBy(_window(window_seconds), *_WHO)
        .agg(*(value.alias(name) for name, value in (counted | summed | seconds | largest).items()))
    )
    whole = found.withColumns(
        {name: F.col(name) / MICROS for name in seconds}
        | {"refused": _total(_REFUSALS), "tenant": F.substring_index("namespace", "/", 1)}
        | _when(window_seconds, part)
    )
    return whole.select([column.name for column in USAGE.columns])


def waits(events: DataFrame, window_seconds: int, part: int = 0) -> DataFrame:
    """Give the table `waits` of these events: a row for each hour, or longer window, and bucket with somebody in it."""
    window_seconds = max(WAITS_SECONDS, window_seconds)
    memory = F.struct(F.when(_is_list(), "memory").otherwise("watch").alias("wait"), bucket(_waited()).alias("bucket"))
    total = F.struct(F.when(_is_list(), "total").alias("wait"), bucket(F.col("total_us")).alias("bucket"))
    each = asked_for(events).select(_window(window_seconds), *_WHO, F.explode(F.array(memory, total)).alias("one"))
    found = (
        each.select("window_us", *_WHO, "one.wait", "one.bucket")
        .where(F.col("wait").isNotNull())
        .groupBy("window_us", *_WHO, "wait", "bucket")
        .agg(F.count(F.lit(1)).alias("count"))
    )
    whole = found.withColumns({"tenant": F.substring_index("namespace", "/", 1)} | _when(window_seconds, part))
    return whole.select([column.name for column in WAITS.columns])


def add_usage(parts: DataFrame) -> DataFrame:
    """Add up the parts of `usage` that have the same window and the same who; the result has part 0."""
    summed = [F.sum(name).alias(name) for name in _SUMMED]
    largest = [F.max(name).alias(name) for name in _LARGEST]
    return _added(parts, (), (*summed, *largest)).select([column.name for column in USAGE.columns])


def add_waits(parts: DataFrame) -> DataFrame:
    """Add up the parts of `waits`; the result has part 0."""
    added = _added(parts, ("wait", "bucket"), (F.sum("count").alias("count"),))
    return added.select([column.name for column in WAITS.columns])


def sharing(parts: DataFrame) -> DataFrame:
    """Give the table `sharing` from `usage`; hours and namespaces without a question have no row."""
    sums = ("requests", "coalesced", "questions", "questions_saved", "upstream_bytes_saved", "heap_byte_seconds_saved")
    found = parts.groupBy(_hour(), "tenant", "namespace").agg(*(F.sum(name).alias(name) for name in sums))
    return found.where(F.col("questions") > 0).select([column.name for column in SHARING.columns])


def top_costs(parts: DataFrame, most: int) -> DataFrame:
    """Give the table `top_costs` from `usage`: at most `most` of each dimension, measure and period, and none of 0."""
    # Hours are few beside windows: adding them up once more costs less than a second look at `usage`.
    hours = _by_name(parts)
    levels = [["hour_start", "dimension", "name"], ["dimension", "name"]]
    both = hours.groupingSets(levels, "hour_start", "dimension", "name").agg(
        F.when(F.grouping("hour_start") == 1, "whole").otherwise("hour").alias("period"),
        *(F.sum(name).alias(name) for name in MEASURES),
    )
    each = both.unpivot(["period", "hour_start", "dimension", "name"], list(MEASURES), "measure", "value")
    group = Window.partitionBy("period", "hour_start", "dimension", "measure")
    ranked = each.where(F.col("value") > 0).withColumns(
        {
            "rank": F.row_number().over(group.orderBy(F.col("value").desc(), F.col("name").asc_nulls_last())),
            "share": F.col("value") / F.sum("value").over(group),
        }
    )
    return ranked.where(F.col("rank") <= most).select([column.name for column in TOP_COSTS.columns])


def _counted() -> dict[str, Column]:
    """Say of which events each count of `usage` is."""
    outcome, stage = F.col("outcome"), F.coalesce(F.col("outcome_stage"), F.lit(""))
    late, full = _is_list() & (outcome == "timeout"), _is_list() & (outcome == "queue_full")
    return {
        "requests": _is_list(),
        "answered": _is_list() & (outcome == "ok"),
        "timeout_heap": late & (stage == "heap"),
        "timeout_heap_update": late & (stage == "heap_update"),
        "timeout_direct": late & (stage == "direct"),
        "timeout_other": late & ~stage.isin("heap", "heap_update", "direct"),
        "queue_full_heap": full & (stage != "direct"),
        "queue_full_direct": full & (stage == "direct"),
        **{name: _is_list() & (outcome == name) for name in ("oversize", "cancelled", "upstream_error", "failed")},
        "coalesced": _is_list() & F.col("coalesced"),
        "questions": _is_list() & F.col("carries_cost"),
        "watch_frames": ~_is_list(),
        "watch_refused": ~_is_list() & outcome.isin("timeout", "queue_full", "oversize"),
    }


def _summed() -> dict[str, Column]:
    answered, asked = _is_list() & (F.col("outcome") == "ok"), _is_list() & F.col("carries_cost")
    fetched = F.coalesce(F.col("response_bytes"), F.col("name_bytes"), F.lit(0))
    return {
        "topics": F.when(answered, F.col("topic_count").cast("long")),
        "name_bytes": F.when(answered, F.col("name_bytes")),
        "response_bytes": F.when(answered, F.col("response_bytes")),
        "questions_saved": F.when(asked, _others().cast("long")),
        "upstream_bytes_saved": F.when(asked, _others() * fetched),
        "watch_bytes": F.when(~_is_list(), F.col("response_bytes")),
    }


def _micros() -> dict[str, Column]:
    """Give what is summed in microseconds: as doubles, since bytes times microseconds of a busy day fill 63 bits."""
    heap, direct = (F.col(name).cast("double") for name in ("heap_byte_us", "direct_byte_us"))
    carried = F.col("carries_cost")
    return {
        "heap_byte_seconds": F.when(_is_list() & carried, heap),
        "direct_byte_seconds": F.when(_is_list() & carried, direct),
        "memory_wait_seconds": F.when(_is_list(), _waited()),
        "heap_byte_seconds_saved": F.when(_is_list() & carried, _others() * heap),
        "watch_direct_byte_seconds": F.when(~_is_list() & carried, direct),
    }


def _largest() -> dict[str, Column]:
    return {
        "max_memory_wait_us": F.when(_is_list(), _waited()),
        "max_total_us": F.when(_is_list(), F.col("total_us")),
        "max_topics": F.when(_is_list(), F.col("topic_count")),
        "max_response_bytes": F.when(_is_list(), F.col("response_bytes")),
        "max_heap_bytes": F.when(_is_list(), F.col("heap_actual_bytes")),
    }


def _is_list() -> Column:
    # Columns are made where they are used: without a session there are none.
    return F.col("kind") == "get_topics"


def _waited() -> Column:
    return F.col("heap_wait_us") + F.col("heap_update_wait_us") + F.col("direct_wait_us")


def _others() -> Column:
    return F.coalesce(F.col("group_size"), F.lit(1)) - 1


def _window(seconds: int) -> Column:
    us = F.col("ts_us")
    return (us - F.pmod(us, F.lit(seconds * MICROS))).alias("window_us")


def _when(window_seconds: int, part: int) -> dict[str, Column]:
    start = F.timestamp_micros("window_us")
    return {
        "date": F.to_date(start),
        "window_start": start,
        "window_seconds": F.lit(window_seconds),
        "part": F.lit(part).cast("long"),
    }


def _hour() -> Column:
    return F.date_trunc("hour", "window_start").alias("hour_start")


def _total(names: Sequence[str]) -> Column:
    total = F.col(names[0])
    for name in names[1:]:
        total = total + F.col(name)
    return total


def _added(parts: DataFrame, more: Sequence[str], values: Sequence[Column]) -> DataFrame:
    by = ("date", "window_start", "window_seconds", "tenant", *_WHO, *more)
    return parts.groupBy(*by).agg(*values).withColumn("part", F.lit(0).cast("long"))


def _by_name(parts: DataFrame) -> DataFrame:
    """Add up each hour by each name of each dimension: one pass, one shuffle."""
    names = [F.struct(F.lit(dimension).alias("dimension"), F.col(dimension).alias("name")) for dimension in DIMENSIONS]
    measured = [F.col(name).cast("double").alias(name) for name in MEASURES]
    each = parts.select(_hour(), F.explode(F.array(*names)).alias("one"), *measured)
    sums = [F.sum(name).alias(name) for name in MEASURES]
    return each.groupBy("hour_start", F.col("one.dimension"), F.col("one.name")).agg(*sums)
