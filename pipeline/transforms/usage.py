"""Who cost how much: events to the tables `usage`, `waits`, `top_costs` and `sharing`.

Rule: the same functions serve batches and streams. What they make of disjoint sets of events adds up to what they make
of all of them (`add_usage`, `add_waits`), so a stream keeps no state. A tenant is the first part of its namespace, and
is put in last: a shorter key is less to shuffle. Decisions of overload control are nobody's request: `slowed` has them.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.core.tables import Table
from pipeline.core.tables.usage import SAVINGS, SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.transforms.histograms import bucket

DIMENSIONS: Final = ("tenant", "namespace", "principal", "client_version")
MEASURES: Final = (
    "heap_byte_seconds", "direct_byte_seconds", "watch_direct_byte_seconds", "requests", "refused", "topics",
    "response_bytes", "watch_bytes", "memory_wait_seconds",
)  # fmt: skip
# What is said of sharing.
SHARED: Final = ("requests", "coalesced", *(column.name for column in SAVINGS))
MICROS: Final = 1_000_000
# Histograms are looked at by hours; by minutes there would be a row for every second request.
WAITS_SECONDS: Final = 3600
_WHO: Final = ("namespace", "principal", "client_version")
_NUMBERS: Final = [
    column.name for column in USAGE.columns if column.type in ("int64", "double") and column.name != "part"
]
_REFUSALS: Final = [name for name in _NUMBERS if name.startswith(("timeout_", "queue_full_", "oversize"))]


def asked_for(events: DataFrame) -> DataFrame:
    """Choose topic lists and watch frames: what clients caused."""
    return events.where(F.col("kind") != "throttle")


def is_list() -> Column:
    """Say whether an event is of a topic list."""
    # A column is made where it is used: without a session there is none.
    return F.col("kind") == "get_topics"


def memory_wait() -> Column:
    """Give the time that a request waited for memory, microseconds."""
    return F.col("heap_wait_us") + F.col("heap_update_wait_us") + F.col("direct_wait_us")


def usage(events: DataFrame, window_seconds: int, part: int = 0) -> DataFrame:
    """Give the table `usage` of these events, one row for each window and who asked."""
    values = [value.alias(name) for name, value in _values().items()]
    found = asked_for(events).groupBy(_window(window_seconds), *_WHO).agg(*values)
    refused = sum(map(F.col, _REFUSALS), F.lit(0))
    return _rows(found.withColumn("refused", refused), USAGE, window_seconds, part)


def waits(events: DataFrame, window_seconds: int, part: int = 0) -> DataFrame:
    """Give the table `waits` of these events: a row for each hour, or longer window, and bucket with somebody in it."""
    window_seconds = max(WAITS_SECONDS, window_seconds)
    memory = F.struct(
        F.when(is_list(), "memory").otherwise("watch").alias("wait"), bucket(memory_wait()).alias("bucket")
    )
    total = F.struct(F.when(is_list(), "total").alias("wait"), bucket(F.col("total_us")).alias("bucket"))
    each = asked_for(events).select(_window(window_seconds), *_WHO, F.explode(F.array(memory, total)).alias("one"))
    named = each.select("window_us", *_WHO, "one.wait", "one.bucket").where(F.col("wait").isNotNull())
    found = named.groupBy("window_us", *_WHO, "wait", "bucket").agg(F.count("*").alias("count"))
    return _rows(found, WAITS, window_seconds, part)


def add_usage(parts: DataFrame) -> DataFrame:
    """Add up the parts of `usage` that have the same window and the same who; the result has part 0."""
    values = [(F.max if name.startswith("max_") else F.sum)(name).alias(name) for name in _NUMBERS]
    return _added(parts, USAGE, (), values)


def add_waits(parts: DataFrame) -> DataFrame:
    """Add up the parts of `waits`; the result has part 0."""
    return _added(parts, WAITS, ("wait", "bucket"), [F.sum("count").alias("count")])


def sharing(parts: DataFrame) -> DataFrame:
    """Give the table `sharing` from `usage`; hours and namespaces without a question have no row."""
    found = parts.groupBy(_hour(), "tenant", "namespace").agg(*(F.sum(name).alias(name) for name in SHARED))
    return found.where(F.col("questions") > 0).select([column.name for column in SHARING.columns])


def top_costs(parts: DataFrame, most: int) -> DataFrame:
    """Give the table `top_costs` from `usage`: at most `most` of each dimension, measure and period, and none of 0."""
    names = [F.struct(F.lit(dimension).alias("dimension"), F.col(dimension).alias("name")) for dimension in DIMENSIONS]
    measured = [F.col(name).cast("double").alias(name) for name in MEASURES]
    sums = [F.sum(name).alias(name) for name in MEASURES]
    named = parts.select(_hour(), F.explode(F.array(*names)).alias("one"), *measured)
    # Hours are few beside windows: adding them up once more costs less than a second look at `usage`.
    hours = named.groupBy("hour_start", F.col("one.dimension"), F.col("one.name")).agg(*sums)
    levels = [["hour_start", "dimension", "name"], ["dimension", "name"]]
    period = F.when(F.grouping("hour_start") == 1, "whole").otherwise("hour").alias("period")
    both = hours.groupingSets(levels, "hour_start", "dimension", "name").agg(period, *sums)
    each = both.unpivot(["period", "hour_start", "dimension", "name"], list(MEASURES), "measure", "value")
    group = Window.partitionBy("period", "hour_start", "dimension", "measure")
    rank = F.row_number().over(group.orderBy(F.col("value").desc(), F.col("name").asc_nulls_last()))
    share = F.col("value") / F.sum("value").over(group)
    ranked = each.where(F.col("value") > 0).withColumns({"rank": rank, "share": share})
    return ranked.where(F.col("rank") <= most).select([column.name for column in TOP_COSTS.columns])


def _values() -> dict[str, Column]:
    """Say how each number of `usage` is made, but for sums of these."""
    outcome, stage, carried = F.col("outcome"), F.coalesce(F.col("outcome_stage"), F.lit("")), F.col("carries_cost")
    late, full = is_list() & (outcome == "timeout"), is_list() & (outcome == "queue_full")
    answered, asked = is_list() & (outcome == "ok"), is_list() & carried
    counted = {
        "requests": is_list(),
        "answered": answered,
        "timeout_heap": late & (stage == "heap"),
        "timeout_heap_update": late & (stage == "heap_update"),
        "timeout_direct": late & (stage == "direct"),
        "timeout_other": late & ~stage.isin("heap", "heap_update", "direct"),
        "queue_full_heap": full & (stage != "direct"),
        "queue_full_direct": full & (stage == "direct"),
        **{name: is_list() & (outcome == name) for name in ("oversize", "cancelled", "upstream_error", "failed")},
        "coalesced": is_list() & F.col("coalesced"),
        "questions": asked,
        "watch_frames": ~is_list(),
        "watch_refused": ~is_list() & outcome.isin("timeout", "queue_full", "oversize"),
    }
    others = F.coalesce(F.col("group_size"), F.lit(1)) - 1
    fetched = F.coalesce(F.col("response_bytes"), F.col("name_bytes"), F.lit(0))
    summed = {
        "topics": F.when(answered, F.col("topic_count").cast("long")),
        "name_bytes": F.when(answered, F.col("name_bytes")),
        "response_bytes": F.when(answered, F.col("response_bytes")),
        "questions_saved": F.when(asked, others.cast("long")),
        "upstream_bytes_saved": F.when(asked, others * fetched),
        "watch_bytes": F.when(~is_list(), F.col("response_bytes")),
    }
    # Bytes times microseconds of a busy day fill 63 bits.
    heap, direct = (F.col(name).cast("double") for name in ("heap_byte_us", "direct_byte_us"))
    micros = {
        "heap_byte_seconds": F.when(asked, heap),
        "direct_byte_seconds": F.when(asked, direct),
        "memory_wait_seconds": F.when(is_list(), memory_wait().cast("double")),
        "heap_byte_seconds_saved": F.when(asked, others * heap),
        "watch_direct_byte_seconds": F.when(~is_list() & carried, direct),
    }
    largest = {
        "max_memory_wait_us": memory_wait(),
        "max_total_us": F.col("total_us"),
        "max_topics": F.col("topic_count"),
        "max_response_bytes": F.col("response_bytes"),
        "max_heap_bytes": F.col("heap_actual_bytes"),
    }
    return (
        {name: F.count_if(condition) for name, condition in counted.items()}
        | {name: F.coalesce(F.sum(value), F.lit(0)) for name, value in summed.items()}
        | {name: F.coalesce(F.sum(value), F.lit(0.0)) / MICROS for name, value in micros.items()}
        | {name: F.coalesce(F.max(F.when(is_list(), value)), F.lit(0)).cast("long") for name, value in largest.items()}
    )


def _window(seconds: int) -> Column:
    us = F.col("ts_us")
    return (us - F.pmod(us, F.lit(seconds * MICROS))).alias("window_us")


def _rows(found: DataFrame, table: Table, window_seconds: int, part: int) -> DataFrame:
    """Make rows of a table of what was found by `window_us` and who asked."""
    start = F.timestamp_micros("window_us")
    window = {"date": F.to_date(start), "window_start": start, "window_seconds": F.lit(window_seconds)}
    whose = {"tenant": F.substring_index("namespace", "/", 1), "part": F.lit(part).cast("long")}
    return found.withColumns(window | whose).select([column.name for column in table.columns])


def _hour() -> Column:
    return F.date_trunc("hour", "window_start").alias("hour_start")


def _added(parts: DataFrame, table: Table, more: Sequence[str], values: Sequence[Column]) -> DataFrame:
    by = ("date", "window_start", "window_seconds", "tenant", *_WHO, *more)
    added = parts.groupBy(*by).agg(*values).withColumn("part", F.lit(0).cast("long"))
    return added.select([column.name for column in table.columns])
