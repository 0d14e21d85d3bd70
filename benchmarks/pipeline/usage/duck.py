"""The tables of `usage` by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.usage.work import TOP, WINDOW_SECONDS
from pipeline.core.buckets import PER_OCTAVE, TINY
from pipeline.transforms.usage import DIMENSIONS, MEASURES, WAITS_SECONDS

_WHO: Final = "cluster, proxy_id, namespace, principal, client_version"
_LATE: Final = "is_list AND outcome = 'timeout'"
_FULL: Final = "is_list AND outcome = 'queue_full'"
_STAGE: Final = "coalesce(outcome_stage, '')"
_FETCHED: Final = "coalesce(response_bytes, name_bytes, 0)"
_EVENTS: Final = """
SELECT *, kind = 'get_topics' AS is_list, ts_us - ts_us % {micros} AS window_us,
  heap_wait_us + heap_update_wait_us + direct_wait_us AS waited_us, coalesce(group_size, 1) - 1 AS others
FROM read_parquet('{events}/**/*.parquet', hive_partitioning = false)"""
_COUNTED: Final = {
    "requests": "is_list",
    "answered": "is_list AND outcome = 'ok'",
    "timeout_heap": f"{_LATE} AND {_STAGE} = 'heap'",
    "timeout_heap_update": f"{_LATE} AND {_STAGE} = 'heap_update'",
    "timeout_direct": f"{_LATE} AND {_STAGE} = 'direct'",
    "timeout_other": f"{_LATE} AND {_STAGE} NOT IN ('heap', 'heap_update', 'direct')",
    "queue_full_heap": f"{_FULL} AND {_STAGE} <> 'direct'",
    "queue_full_direct": f"{_FULL} AND {_STAGE} = 'direct'",
    **{name: f"is_list AND outcome = '{name}'" for name in ("oversize", "cancelled", "upstream_error", "failed")},
    "coalesced": "is_list AND coalesced",
    "questions": "is_list AND carries_cost",
    "watch_frames": "NOT is_list",
    "watch_refused": "NOT is_list AND outcome IN ('timeout', 'queue_full', 'oversize')",
}
_SUMMED: Final = {
    "topics": ("topic_count", "is_list AND outcome = 'ok'"),
    "name_bytes": ("name_bytes", "is_list AND outcome = 'ok'"),
    "response_bytes": ("response_bytes", "is_list AND outcome = 'ok'"),
    "questions_saved": ("others", "is_list AND carries_cost"),
    "upstream_bytes_saved": (f"others * {_FETCHED}", "is_list AND carries_cost"),
    "watch_bytes": ("response_bytes", "NOT is_list"),
}
_SECONDS: Final = {
    "heap_byte_seconds": ("heap_byte_us::DOUBLE", "is_list AND carries_cost"),
    "direct_byte_seconds": ("direct_byte_us::DOUBLE", "is_list AND carries_cost"),
    "memory_wait_seconds": ("waited_us::DOUBLE", "is_list"),
    "heap_byte_seconds_saved": ("others * heap_byte_us::DOUBLE", "is_list AND carries_cost"),
    "watch_direct_byte_seconds": ("direct_byte_us::DOUBLE", "NOT is_list AND carries_cost"),
}
_LARGEST: Final = {
    "max_memory_wait_us": "waited_us",
    "max_total_us": "total_us",
    "max_topics": "topic_count",
    "max_response_bytes": "response_bytes",
    "max_heap_bytes": "heap_actual_bytes",
}
_WINDOW: Final = "make_timestamp(window_us) AS window_start, split_part(namespace, '/', 1) AS tenant"
_REFUSED: Final = (
    "timeout_heap + timeout_heap_update + timeout_direct + timeout_other"
    " + queue_full_heap + queue_full_direct + oversize"
)


class Engine:
    """DuckDB with as many threads as Spark has."""

    def __init__(self, events: Path, out: Path) -> None:
        self._out = out
        self._database = duckdb.connect(config={"threads": THREADS})
        self._events, self._by_hour = (
            _EVENTS.format(micros=seconds * 1_000_000, events=events) for seconds in (WINDOW_SECONDS, WAITS_SECONDS)
        )

    def run(self) -> None:
        """Make all four tables."""
        self._write("usage", self._usage())
        self._write("waits", self._waits())
        self._write("sharing", self._sharing())
        self._write("top_costs", self._top_costs())

    def close(self) -> None:
        """End the engine."""
        self._database.close()

    def _write(self, table: str, query: str) -> None:
        path = self._out / f"{table}.parquet"
        self._database.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")

    def _usage(self) -> str:
        columns = [f"count(*) FILTER ({condition}) AS {name}" for name, condition in _COUNTED.items()]
        columns += [
            f"coalesce(sum({value}) FILTER ({condition}), 0)::BIGINT AS {name}"
            for name, (value, condition) in _SUMMED.items()
        ]
        columns += [
            f"coalesce(sum({value}) FILTER ({condition}), 0) / 1e6 AS {name}"
            for name, (value, condition) in _SECONDS.items()
        ]
        columns += [f"coalesce(max({value}) FILTER (is_list), 0)::BIGINT AS {name}" for name, value in _LARGEST.items()]
        grouped = f"SELECT window_us, {_WHO}, broker, {', '.join(columns)} FROM ({self._events}) GROUP BY ALL"
        return f"SELECT *, {_WINDOW}, {_REFUSED} AS refused FROM ({grouped})"

    def _waits(self) -> str:
        each = (
            f"SELECT window_us, {_WHO}, unnest([CASE WHEN is_list THEN 'memory' ELSE 'watch' END, 'total']) AS wait,"
            f" unnest([waited_us, total_us]) AS us, is_list FROM ({self._by_hour})"
        )
        bucket = f"CASE WHEN us > 0 THEN floor({PER_OCTAVE} * log2(us) + {TINY})::INTEGER ELSE -1 END AS bucket"
        bucketed = f"SELECT *, {bucket} FROM ({each}) WHERE is_list OR wait <> 'total'"
        grouped = (
            f"SELECT window_us, {_WHO}, wait, bucket, count(*) AS count FROM ({bucketed})"
            f" GROUP BY window_us, {_WHO}, wait, bucket"
        )
        return f"SELECT *, {_WINDOW} FROM ({grouped})"

    def _sharing(self) -> str:
        names = ("requests", "coalesced", "questions", "questions_saved", "upstream_bytes_saved")
        sums = [f"sum({name})::BIGINT AS {name}" for name in names]
        return (
            "SELECT date_trunc('hour', window_start) AS hour_start, cluster, proxy_id, tenant, namespace,"
            f" {', '.join(sums)},"
            f" sum(heap_byte_seconds_saved) AS heap_byte_seconds_saved FROM '{self._out}/usage.parquet'"
            " GROUP BY ALL HAVING sum(questions) > 0"
        )

    def _top_costs(self) -> str:
        sums = ", ".join(f"sum({name})::DOUBLE AS {name}" for name in MEASURES)
        hourly = " UNION ALL ".join(
            "SELECT window_start::DATE AS date, cluster, date_trunc('hour', window_start) AS hour_start,"
            f" '{dimension}' AS dimension, {dimension} AS name,"
            f" {sums} FROM '{self._out}/usage.parquet' GROUP BY ALL"
            for dimension in DIMENSIONS
        )
        whole = f"SELECT date, cluster, NULL::TIMESTAMP AS hour_start, dimension, name, {sums} FROM hourly GROUP BY ALL"
        both = f"SELECT * FROM hourly UNION ALL ({whole})"
        each = f"UNPIVOT ({both}) ON {', '.join(MEASURES)} INTO NAME measure VALUE value"
        group = "PARTITION BY date, cluster, hour_start, dimension, measure"
        ranked = (
            f"SELECT *, row_number() OVER ({group} ORDER BY value DESC, name ASC NULLS LAST)::INTEGER AS rank,"
            f" value / sum(value) OVER ({group}) AS share FROM ({each}) WHERE value > 0"
        )
        return f"WITH hourly AS MATERIALIZED ({hourly}) SELECT * FROM ({ranked}) WHERE rank <= {TOP}"
