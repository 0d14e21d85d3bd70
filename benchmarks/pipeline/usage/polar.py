"""The tables of `usage` by Polars."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.buckets import NO_WAIT, PER_OCTAVE, TINY
from pipeline.transforms.usage import DIMENSIONS, MEASURES, WAITS_SECONDS

_WHO: Final = ("cluster", "proxy_id", "namespace", "principal", "client_version")
_LIST: Final = pl.col("kind") == "get_topics"
_WAITED: Final = pl.col("heap_wait_us") + pl.col("heap_update_wait_us") + pl.col("direct_wait_us")
_OTHERS: Final = pl.col("group_size").fill_null(1).cast(pl.Int64) - 1
_TENANT: Final = pl.col("namespace").str.split("/").list.first().alias("tenant")
_START: Final = pl.col("window_us").cast(pl.Datetime("us")).alias("window_start")


class Engine:
    """Polars with as many threads as Spark has (`POLARS_MAX_THREADS`)."""

    def __init__(self, events: Path, out: Path) -> None:
        self._out = out
        self._events = pl.scan_parquet(f"{events}/**/*.parquet", hive_partitioning=False)

    def run(self) -> None:
        """Make all four tables."""
        self._write("usage", _usage(self._events.with_columns(_window(WINDOW_SECONDS))))
        self._write("waits", _waits(self._events.with_columns(_window(WAITS_SECONDS))))
        usage = pl.scan_parquet(self._out / "usage.parquet")
        start = pl.col("window_start")
        hour = usage.with_columns(start.dt.truncate("1h").alias("hour_start"), start.dt.date().alias("date"))
        self._write("sharing", _sharing(hour))
        self._write("top_costs", _top_costs(hour, TOP))

    def close(self) -> None:
        """Do nothing: there is nothing to end."""

    def _write(self, table: str, frame: pl.LazyFrame) -> None:
        frame.collect(engine="streaming").write_parquet(self._out / f"{table}.parquet", compression="zstd")


def _window(seconds: int) -> pl.Expr:
    micros = seconds * 1_000_000
    return (pl.col("ts_us") - pl.col("ts_us") % micros).alias("window_us")


def _usage(events: pl.LazyFrame) -> pl.LazyFrame:
    seconds = (
        "heap_byte_seconds",
        "direct_byte_seconds",
        "memory_wait_seconds",
        "heap_byte_seconds_saved",
        "watch_direct_byte_seconds",
    )
    found = events.group_by("window_us", *_WHO, "broker").agg(*_counts(), *_sums(), *_largest())
    refused = pl.sum_horizontal(
        "timeout_heap",
        "timeout_heap_update",
        "timeout_direct",
        "timeout_other",
        "queue_full_heap",
        "queue_full_direct",
        "oversize",
    ).cast(pl.Int64)
    return found.with_columns(_START, _TENANT, refused.alias("refused"), *(pl.col(name) / 1e6 for name in seconds))


def _counts() -> list[pl.Expr]:
    outcome, stage = pl.col("outcome"), pl.col("outcome_stage").fill_null("")
    late, full = _LIST & (outcome == "timeout"), _LIST & (outcome == "queue_full")
    counted = {
        "requests": _LIST,
        "answered": _LIST & (outcome == "ok"),
        "timeout_heap": late & (stage == "heap"),
        "timeout_heap_update": late & (stage == "heap_update"),
        "timeout_direct": late & (stage == "direct"),
        "timeout_other": late & ~stage.is_in(["heap", "heap_update", "direct"]),
        "queue_full_heap": full & (stage != "direct"),
        "queue_full_direct": full & (stage == "direct"),
        **{name: _LIST & (outcome == name) for name in ("oversize", "cancelled", "upstream_error", "failed")},
        "coalesced": _LIST & pl.col("coalesced"),
        "questions": _LIST & pl.col("carries_cost"),
        "watch_frames": ~_LIST,
        "watch_refused": ~_LIST & outcome.is_in(["timeout", "queue_full", "oversize"]),
    }
    return [condition.sum().cast(pl.Int64).alias(name) for name, condition in counted.items()]


def _sums() -> list[pl.Expr]:
    well, asked, watch = _LIST & (pl.col("outcome") == "ok"), _LIST & pl.col("carries_cost"), ~_LIST
    heap, direct = (pl.col(name).cast(pl.Float64) for name in ("heap_byte_us", "direct_byte_us"))
    fetched = pl.coalesce("response_bytes", "name_bytes").fill_null(0)
    summed = {
        "topics": (pl.col("topic_count").cast(pl.Int64), well),
        "name_bytes": (pl.col("name_bytes"), well),
        "response_bytes": (pl.col("response_bytes"), well),
        "questions_saved": (_OTHERS, asked),
        "upstream_bytes_saved": (_OTHERS * fetched, asked),
        "watch_bytes": (pl.col("response_bytes"), watch),
        "heap_byte_seconds": (heap, asked),
        "direct_byte_seconds": (direct, asked),
        "memory_wait_seconds": (_WAITED.cast(pl.Float64), _LIST),
        "heap_byte_seconds_saved": (_OTHERS * heap, asked),
        "watch_direct_byte_seconds": (direct, watch & pl.col("carries_cost")),
    }
    return [pl.when(of).then(value).otherwise(None).sum().alias(name) for name, (value, of) in summed.items()]


def _largest() -> list[pl.Expr]:
    largest = {
        "max_memory_wait_us": _WAITED,
        "max_total_us": pl.col("total_us"),
        "max_topics": pl.col("topic_count"),
        "max_response_bytes": pl.col("response_bytes"),
        "max_heap_bytes": pl.col("heap_actual_bytes"),
    }
    return [
        pl.when(_LIST).then(value).otherwise(None).max().fill_null(0).cast(pl.Int64).alias(name)
        for name, value in largest.items()
    ]


def _waits(events: pl.LazyFrame) -> pl.LazyFrame:
    memory = events.select(
        "window_us",
        *_WHO,
        pl.when(_LIST).then(pl.lit("memory")).otherwise(pl.lit("watch")).alias("wait"),
        _bucket(_WAITED),
    )
    total = events.filter(_LIST).select("window_us", *_WHO, pl.lit("total").alias("wait"), _bucket(pl.col("total_us")))
    counted = [
        part.group_by("window_us", *_WHO, "wait", "bucket").agg(pl.len().cast(pl.Int64).alias("count"))
        for part in (memory, total)
    ]
    return pl.concat(counted).with_columns(_START, _TENANT)


def _bucket(us: pl.Expr) -> pl.Expr:
    power = (PER_OCTAVE * us.cast(pl.Float64).log(2) + TINY).floor().cast(pl.Int32, strict=False)
    return pl.when(us > 0).then(power).otherwise(NO_WAIT).cast(pl.Int32).alias("bucket")


def _sharing(usage: pl.LazyFrame) -> pl.LazyFrame:
    names = ("requests", "coalesced", "questions", "questions_saved", "upstream_bytes_saved", "heap_byte_seconds_saved")
    return (
        usage.group_by("hour_start", "cluster", "proxy_id", "tenant", "namespace")
        .agg(pl.sum(*names))
        .filter(pl.col("questions") > 0)
    )


def _top_costs(usage: pl.LazyFrame, most: int) -> pl.LazyFrame:
    sums = [pl.col(name).cast(pl.Float64).sum() for name in MEASURES]
    hourly = pl.concat(
        usage.group_by("date", "cluster", "hour_start", pl.col(dimension).alias("name"))
        .agg(*sums)
        .with_columns(pl.lit(dimension).alias("dimension"))
        for dimension in DIMENSIONS
    )
    whole = (
        hourly.group_by("date", "cluster", "dimension", "name")
        .agg(*sums)
        .with_columns(pl.lit(None).cast(pl.Datetime("us")).alias("hour_start"))
    )
    group = ("date", "cluster", "hour_start", "dimension", "measure")
    each = pl.concat([hourly, whole.select(hourly.collect_schema().names())]).unpivot(
        list(MEASURES), index=["date", "cluster", "hour_start", "dimension", "name"], variable_name="measure"
    )
    ranked = each.filter(pl.col("value") > 0).sort("value", "name", descending=[True, False], nulls_last=True)
    return ranked.with_columns(
        pl.int_range(1, pl.len() + 1, dtype=pl.Int32).over(group).alias("rank"),
        (pl.col("value") / pl.col("value").sum().over(group)).alias("share"),
    ).filter(pl.col("rank") <= most)
