"""Costs by namespace, principal and client version: the tables `usage`, `waits`, `top_costs`, `sharing` from events.

Rule: a table of some days is the same whatever other days there are. A tenant is the first part of its namespace, and
is put in last: a shorter key is less to shuffle. Decisions of overload control are nobody's request: `slowed` has them.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.core.tables import Table
from pipeline.core.tables.usage import SAVINGS, SHARING, TOP_COSTS, USAGE, WAITS
from pipeline.transforms.histograms import bucket

DIMENSIONS: Final = ("tenant", "namespace", "principal", "client_version", "proxy_id", "broker")
MEASURES: Final = (
    "heap_byte_seconds", "direct_byte_seconds", "watch_direct_byte_seconds", "requests", "refused", "topics",
    "response_bytes", "watch_bytes", "memory_wait_seconds",
)  # fmt: skip
# The columns of `sharing` that are summed.
SHARED: Final = ("requests", "coalesced", *(column.name for column in SAVINGS))
MICROS: Final = 1_000_000
# Histograms are looked at by hours; by minutes there would be a row for every second request.
WAITS_SECONDS: Final = 3600
WHO: Final = ("cluster", "proxy_id", "namespace", "principal", "client_version")
_NUMBERS: Final = [column.name for column in USAGE.columns if column.type in ("int64", "double")]
_REFUSALS: Final = [name for name in _NUMBERS if name.startswith(("timeout_", "queue_full_", "oversize"))]


_ASKED_FOR: Final = "kind <> 'throttle'"
_LIST: Final = "kind = 'get_topics'"
_LATE: Final = f"{_LIST} AND outcome = 'timeout' AND coalesce(outcome_stage, '')"
_FULL: Final = f"{_LIST} AND outcome = 'queue_full' AND coalesce(outcome_stage, '')"
_ANSWERED: Final = f"{_LIST} AND outcome = 'ok'"
_ASKED: Final = f"{_LIST} AND carries_cost"
_WATCH: Final = "kind <> 'get_topics'"
_OTHERS: Final = "(coalesce(group_size, 1) - 1)"
# The product of two numbers that an event may have does not fit into 63 bits: a petabyte is enough for one answer.
_SAVED: Final = f"cast(least({_OTHERS} * cast(coalesce(response_bytes, name_bytes, 0) AS double), 1e15) AS bigint)"
_WAITED: Final = "(heap_wait_us + heap_update_wait_us + direct_wait_us)"
_COUNTED: Final = {
    "requests": _LIST,
    "answered": _ANSWERED,
    "timeout_heap": f"{_LATE} = 'heap'",
    "timeout_heap_update": f"{_LATE} = 'heap_update'",
    "timeout_direct": f"{_LATE} = 'direct'",
    "timeout_other": f"{_LATE} NOT IN ('heap', 'heap_update', 'direct')",
    "queue_full_heap": f"{_FULL} <> 'direct'",
    "queue_full_direct": f"{_FULL} = 'direct'",
    **{name: f"{_LIST} AND outcome = '{name}'" for name in ("oversize", "cancelled", "upstream_error", "failed")},
    "coalesced": f"{_LIST} AND coalesced",
    "questions": _ASKED,
    "watch_frames": _WATCH,
    "watch_refused": f"{_WATCH} AND outcome IN ('timeout', 'queue_full', 'oversize')",
}
_ADDED: Final = {
    "topics": (_ANSWERED, "topic_count"),
    "name_bytes": (_ANSWERED, "name_bytes"),
    "response_bytes": (_ANSWERED, "response_bytes"),
    "questions_saved": (_ASKED, _OTHERS),
    "upstream_bytes_saved": (_ASKED, _SAVED),
    "watch_bytes": (_WATCH, "response_bytes"),
}
# Summed in microseconds as doubles, since bytes times microseconds of a busy day fill 63 bits.
_MICROS: Final = {
    "heap_byte_seconds": (_ASKED, "cast(heap_byte_us AS double)"),
    "direct_byte_seconds": (_ASKED, "cast(direct_byte_us AS double)"),
    "memory_wait_seconds": (_LIST, f"cast({_WAITED} AS double)"),
    "heap_byte_seconds_saved": (_ASKED, f"{_OTHERS} * cast(heap_byte_us AS double)"),
    "watch_direct_byte_seconds": (f"{_WATCH} AND carries_cost", "cast(direct_byte_us AS double)"),
}
_MOST: Final = {
    "max_memory_wait_us": _WAITED,
    "max_total_us": "total_us",
    "max_topics": "topic_count",
    "max_response_bytes": "response_bytes",
    "max_heap_bytes": "heap_actual_bytes",
}
AGGREGATES: Final[Mapping[str, str]] = {
    **{name: f"count(CASE WHEN {of} THEN 1 END)" for name, of in _COUNTED.items()},
    **{
        name: f"cast(coalesce(sum(CASE WHEN {of} THEN {value} END), 0) AS bigint)"
        for name, (of, value) in _ADDED.items()
    },
    **{
        name: f"coalesce(sum(CASE WHEN {of} THEN {value} END), cast(0 AS double)) / 1e6"
        for name, (of, value) in _MICROS.items()
    },
    **{name: f"cast(coalesce(max(CASE WHEN {_LIST} THEN {value} END), 0) AS bigint)" for name, value in _MOST.items()},
}
# Each event in up to two histograms: whose, null is none, and the wait.
TWO_WAITS: Final = (
    (f"CASE WHEN {_LIST} THEN 'memory' ELSE 'watch' END", _WAITED),
    (f"CASE WHEN {_LIST} THEN 'total' END", "total_us"),
)


def window_sql(seconds: int) -> str:
    """Return the microsecond in which the window of an event begins, as SQL; no event is from before 1970."""
    return f"ts_us - ts_us % {seconds * MICROS}"


def asked_for(events: DataFrame) -> DataFrame:
    """Choose topic lists and watch frames: what clients caused."""
    return events.where(_ASKED_FOR)


def is_list() -> Column:
    """Return whether an event is of a topic list."""
    # A column is made where it is used: without a session there is none.
    return F.expr(_LIST)


def memory_wait() -> Column:
    """Return the time that a request waited for memory, microseconds."""
    return F.expr(_WAITED)


def usage(events: DataFrame, window_seconds: int) -> DataFrame:
    """Return the table `usage` of these events, one row for each window, who asked, and broker."""
    values = [F.expr(sql).alias(name) for name, sql in AGGREGATES.items()]
    found = asked_for(events).groupBy(_window(window_seconds), *WHO, "broker").agg(*values)
    refused = sum(map(F.col, _REFUSALS), F.lit(0))
    return _rows(found.withColumn("refused", refused), USAGE, window_seconds)


def waits(events: DataFrame, window_seconds: int) -> DataFrame:
    """Return the table `waits` of these events: a row for each hour, or longer window, and each bucket not empty."""
    two = [F.struct(F.expr(wait).alias("wait"), bucket(F.expr(us)).alias("bucket")) for wait, us in TWO_WAITS]
    seconds = max(WAITS_SECONDS, window_seconds)
    each = asked_for(events).select(_window(seconds), *WHO, F.explode(F.array(*two)).alias("one"))
    named = each.select("window_us", *WHO, "one.wait", "one.bucket").where(F.col("wait").isNotNull())
    found = named.groupBy("window_us", *WHO, "wait", "bucket").agg(F.count("*").alias("count"))
    return _rows(found, WAITS, seconds)


def sharing(usage: DataFrame) -> DataFrame:
    """Return the table `sharing` from `usage`; hours and namespaces without a question have no row."""
    by = ("date", "cluster", "proxy_id", "tenant", "namespace")
    found = usage.groupBy(_hour(), *by).agg(*(F.sum(name).alias(name) for name in SHARED))
    return found.where(F.col("questions") > 0).select([column.name for column in SHARING.columns])


def top_costs(usage: DataFrame, most: int) -> DataFrame:
    """Return the table `top_costs` from `usage`: at most `most` by dimension, measure and time, and none of 0."""
    names = [F.struct(F.lit(dimension).alias("dimension"), F.col(dimension).alias("name")) for dimension in DIMENSIONS]
    measured = [F.col(name).cast("double").alias(name) for name in MEASURES]
    sums = [F.sum(name).alias(name) for name in MEASURES]
    named = usage.select("date", "cluster", _hour(), F.explode(F.array(*names)).alias("one"), *measured)
    # Hours are few beside windows: adding them up once more costs less than a second look at `usage`.
    of_day = ("date", "cluster", "dimension", "name")
    hours = named.groupBy("date", "cluster", "hour_start", "one.dimension", "one.name").agg(*sums)
    both = hours.groupingSets([[*of_day, "hour_start"], [*of_day]], *of_day, "hour_start").agg(*sums)
    each = both.unpivot([*of_day, "hour_start"], list(MEASURES), "measure", "value")
    group = Window.partitionBy("date", "cluster", "hour_start", "dimension", "measure")
    rank = F.row_number().over(group.orderBy(F.col("value").desc(), F.col("name").asc_nulls_last()))
    share = F.col("value") / F.sum("value").over(group)
    ranked = each.where(F.col("value") > 0).withColumns({"rank": rank, "share": share})
    return ranked.where(F.col("rank") <= most).select([column.name for column in TOP_COSTS.columns])


def _window(seconds: int) -> Column:
    return F.expr(window_sql(seconds)).alias("window_us")


def _rows(found: DataFrame, table: Table, window_seconds: int) -> DataFrame:
    """Make rows of a table of what was found by `window_us` and who asked."""
    start = F.timestamp_micros("window_us")
    window = {"date": F.to_date(start), "window_start": start, "window_seconds": F.lit(window_seconds)}
    tenant = {"tenant": F.substring_index("namespace", "/", 1)}
    return found.withColumns(window | tenant).select([column.name for column in table.columns])


def _hour() -> Column:
    return F.date_trunc("hour", "window_start").alias("hour_start")
