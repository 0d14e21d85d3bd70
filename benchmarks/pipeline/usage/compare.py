"""Tell whether two engines made the same tables: whole numbers and names equal, sums of doubles to nine digits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from pipeline.core.tables import TABLES

__all__ = ["KEYS", "differences", "load"]

DIGITS: Final = 1e-9
_WHO: Final = ("window_start", "cluster", "proxy_id", "namespace", "principal", "client_version")
# Ranks of nearly equal doubles may change places, so rankings are compared by their values.
KEYS: Final = {
    "usage": (*_WHO, "broker"),
    "waits": (*_WHO, "wait", "bucket"),
    "sharing": ("hour_start", "cluster", "proxy_id", "namespace"),
    "top_costs": ("date", "cluster", "hour_start", "dimension", "measure", "rank"),
}
LEFT_OUT: Final = {"date", "window_seconds", "name"}


def load(out: Path, table: str) -> pl.DataFrame:
    """Read a table of an engine, in the order of its key."""
    single = out / f"{table}.parquet"
    found = pl.read_parquet(single if single.exists() else f"{out}/{table}/**/*.parquet", hive_partitioning=True)
    times = [
        pl.col(name).cast(pl.Datetime("us")).dt.replace_time_zone(None)
        for name, kind in found.schema.items()
        if isinstance(kind, pl.Datetime)
    ]
    names = [column.name for column in TABLES[table].columns if column.name not in LEFT_OUT.difference(KEYS[table])]
    return found.with_columns(times).select(names).sort(KEYS[table], nulls_last=True)


def differences(one: Path, other: Path) -> list[str]:
    """List the tables and columns in which two engines differ; empty if they agree."""
    return [text for table in KEYS for text in _differ(table, load(one, table), load(other, table))]


def _differ(table: str, left: pl.DataFrame, right: pl.DataFrame) -> list[str]:
    if left.height != right.height:
        return [f"{table}: {left.height} and {right.height} rows"]
    return [f"{table}.{name}" for name in left.columns if not _same(left[name], right[name])]


def _same(left: pl.Series, right: pl.Series) -> bool:
    if not left.dtype.is_float():
        return left.equals(right.cast(left.dtype), null_equal=True)
    if left.is_null().any() or right.is_null().any():
        return False
    return bool(((left - right).abs() <= DIGITS * left.abs()).all())
