"""`whatif` by Polars, with the pipeline's kernel in as many threads as Spark has tasks; everything in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.whatif import SCENARIOS, rows_of
from pipeline.core.model import NEVER, Aggregates, Limits
from pipeline.replay.job import simulate
from pipeline.replay.slices import Slice
from pipeline.replay.traces import TASK_ROWS
from tests.support.pipeline.aggregates import added

# The value of the event, and the stages after which the time of one that was not answered is whole.
_MEASURED: Final = {
    "estimate_bytes": ("heap_estimate_bytes", None),
    "heap_bytes": ("heap_actual_bytes", None),
    "direct_bytes": ("direct_bytes", None),
    "upstream_us": ("upstream_us", ["heap_update", "reader", "direct", "write"]),
    "hold_us": ("read_us", ["reader", "direct", "write"]),
    "write_us": ("write_us", []),
    "direct_us": ("direct_us", []),
    "broker_name": ("broker", None),
}
_LEVELS: Final = (("question_name",), ("namespace_name", "mode"), ("namespace_name",))
_NUMBERS: Final = tuple(name for name in _MEASURED if name != "broker_name")
_BLOCK: Final = 6


class Engine:
    """Polars with as many threads as Spark has (`POLARS_MAX_THREADS`)."""

    def __init__(self, events: Path, out: Path) -> None:
        self._events = f"{events}/**/*.parquet"
        self._out = out
        self.seconds: dict[str, float] = {}

    def run(self) -> None:
        """Make the table."""
        begin = time.perf_counter()
        slices = list(_slices(_traces(self._events)))
        middle = time.perf_counter()
        work = [(part, first) for part in slices for first in range(0, len(SCENARIOS), _BLOCK)]
        with ThreadPoolExecutor(THREADS) as pool:
            done = list(pool.map(lambda item: simulate(item[0], SCENARIOS[item[1] : item[1] + _BLOCK]), work))
        counted: list[list[Aggregates]] = [[] for _ in SCENARIOS]
        for (_, first), block in zip(work, done, strict=True):
            for number, each in enumerate(block, first):
                counted[number].append(each)
        pq.write_table(pa.Table.from_pylist(rows_of([reduce(added, each) for each in counted])), self._target())
        self.seconds = {"traces": middle - begin, "replay": time.perf_counter() - middle}

    def close(self) -> None:
        """Do nothing: there is nothing to end."""

    def _target(self) -> Path:
        return self._out / "whatif.parquet"


def _traces(events: str) -> pl.DataFrame:
    own = pl.concat_str("boot_id", pl.col("seq").cast(pl.String), separator="/")
    requests = (
        pl.scan_parquet(events, hive_partitioning=False)
        .filter(pl.col("kind") == "get_topics")
        .with_columns(_direct_us().alias("direct_us"))
        .select(
            "proxy_id",
            pl.col("ts_us").alias("arrival_us"),
            "seq",
            pl.coalesce("question_hash", own).alias("question_name"),
            pl.coalesce("client_id", own).hash().alias("client"),
            pl.col("namespace").alias("namespace_name"),
            pl.col("mode").fill_null(""),
            *(_measured(*source).alias(name) for name, source in _MEASURED.items()),
            pl.col("cancelled_after_us").fill_null(NEVER).alias("cancel_us"),
            (pl.col("outcome") == "ok").alias("answered"),
        )
        .sort("proxy_id", "arrival_us", "seq")
    )
    return _imputed(requests.collect(engine="streaming")).with_columns(
        pl.col("broker_name").hash().alias("broker"),
        pl.struct("question_name", "broker_name").hash().alias("question"),
    )


def _direct_us() -> pl.Expr:
    limit = pl.col("direct_limit_bytes")
    booked = pl.when(limit > 0).then(pl.min_horizontal("direct_bytes", limit)).otherwise(pl.col("direct_bytes"))
    held = (pl.col("direct_byte_us") / pl.when(booked > 0).then(booked)).ceil().cast(pl.Int64)
    left_alone = pl.col("carries_cost") & (pl.col("group_size") == 1) & held.is_not_null()
    return pl.when(left_alone).then(pl.min_horizontal(held, "write_us")).otherwise(pl.col("write_us"))


def _measured(name: str, stages: list[str] | None) -> pl.Expr:
    if stages is None:
        return pl.col(name)
    return pl.when((pl.col("outcome") == "ok") | pl.col("outcome_stage").is_in(stages).fill_null(False)).then(
        pl.col(name)
    )


def _imputed(requests: pl.DataFrame) -> pl.DataFrame:
    lacking = pl.any_horizontal(pl.col(name).is_null() for name in _MEASURED)
    if not requests.select(lacking.any()).item():
        return requests
    shown = pl.col("answered") & ~lacking
    requests = requests.with_columns(_part().alias("part"))
    for name in _MEASURED:
        known = pl.when(shown).then(pl.col(name))
        likes = [
            like
            for level in _LEVELS
            for like in (
                known.forward_fill().over("proxy_id", "part", *level),
                known.drop_nulls().first().over("proxy_id", "part", *level),
            )
        ]
        if name == "broker_name":
            rest = [known.drop_nulls().first().over("proxy_id"), pl.lit("")]
        else:
            middle, mean = known.quantile(0.5, "lower").cast(pl.Int64), known.mean().floor().cast(pl.Int64)
            rest = [middle.over("proxy_id", "part"), mean.over("proxy_id"), pl.lit(0)]
        likes = [*likes, *rest]
        requests = requests.with_columns(pl.coalesce(pl.col(name), *likes).alias(f"filled_{name}"))
    return requests.drop(*_MEASURED).rename({f"filled_{name}": name for name in _MEASURED})


def _part() -> pl.Expr:
    """Return the number of a request's part of time, in which a task of the pipeline sorts and seeks requests alike."""
    arrival = pl.col("arrival_us").cast(pl.Int64)
    first, last = arrival.min().over("proxy_id"), arrival.max().over("proxy_id")
    parts = (pl.len().over("proxy_id").cast(pl.Int64) + TASK_ROWS - 1) // TASK_ROWS
    return (arrival - first) // ((last - first) // parts + 1)


def _slices(traces: pl.DataFrame) -> Iterator[Slice]:
    for part in traces.partition_by("proxy_id", maintain_order=True):
        numbers = {name: part[name].to_numpy() for name in ("arrival_us", *_NUMBERS, "cancel_us")}
        names = {name: part[name].to_numpy().view(np.int64) for name in ("question", "client", "broker")}
        nobody = np.zeros(len(part), np.int64)
        # Shares of principals, tenants and namespaces are not in these scenarios.
        names |= dict.fromkeys(("principal", "tenant", "namespace"), nobody)
        yield Slice(numbers, names, nobody, nobody, nobody, warm_up=0)


assert {limits.fairness for limits in SCENARIOS} == {Limits().fairness}
