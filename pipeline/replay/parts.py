"""How tasks come to their parts of `replay_input`: which windows there are, and work on them without a shuffle.

Rule: a task reads its part with pyarrow and holds one window with its warm-up. Where tasks cannot read the path
themselves, Spark brings them whole proxies instead (`Way.GROUPED`): the same result, but one task then holds, and works
on, the whole trace of a proxy.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.replay.slices import Slice, batches_of, read_slice, slice_of
from pipeline.replay.traces import Prepared
from pipeline.replay.windows import WINDOW_ROWS, Window, cut

__all__ = ["Part", "Survey", "Way", "over_parts", "survey"]

_WINDOWS: Final = "proxy_id string, start_us long, end_us long, floor_us long, rows long, limits_id long"


class Way(Enum):
    """How tasks come to their requests."""

    DIRECT = "direct"
    GROUPED = "grouped"


@dataclass(frozen=True, slots=True)
class Survey:
    """How tasks come to their requests, and the windows of each proxy."""

    way: Way
    windows: dict[str, tuple[Window, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: requests of a proxy from `warm_us` to before `end_us`, counted from `start_us`."""

    proxy_id: str
    warm_us: int
    start_us: int
    end_us: int


def survey(
    spark: SparkSession,
    prepared: Prepared,
    *,
    by_limits: bool = False,
    rows: int = WINDOW_ROWS,
    ways: Sequence[Way] = tuple(Way),
) -> Survey:
    """Find the windows of each proxy, in the first of `ways` in which tasks see every request."""
    names, path = [proxy.proxy_id for proxy in prepared.proxies], prepared.path

    def look(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            for number in batch["id"]:
                yield pd.DataFrame(_cuts(path, names[number], rows, by_limits=by_limits))

    def look_at_all(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        table = table.sort_by("arrival_us")
        batch = table.column("arrival_us").to_numpy(), table.column("limits_id").to_numpy()
        return _table(key[0].as_py(), cut([batch], rows, by_limits=by_limits))

    for way in ways:
        if way is Way.DIRECT:
            found = spark.range(0, len(names), 1, len(names)).mapInPandas(look, _WINDOWS).collect()
        else:
            columns = _rows(spark, path).select("proxy_id", "arrival_us", "limits_id")
            found = columns.groupBy("proxy_id").applyInArrow(look_at_all, _WINDOWS).collect()
        windows = _by_proxy(found, names)
        if all(sum(window.rows for window in windows[proxy.proxy_id]) == proxy.rows for proxy in prepared.proxies):
            return Survey(way, windows)
    raise AssertionError(f"no way to the rows of {path}")


def over_parts(
    spark: SparkSession,
    path: str,
    way: Way,
    parts: Sequence[Part],
    work: Callable[[int, Slice], pd.DataFrame],
    columns: str,
) -> list[Row]:
    """Run `work(number, slice)` on each part, in tasks; `columns` are those that it gives."""

    def direct(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            for number in batch["id"]:
                part = parts[number]
                yield work(number, read_slice(path, part.proxy_id, part.warm_us, part.start_us, part.end_us))

    def grouped(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        table = table.sort_by([("arrival_us", "ascending"), ("seq", "ascending")])
        mine = [number for number, part in enumerate(parts) if part.proxy_id == key[0].as_py()]
        done = (work(n, slice_of(table, parts[n].warm_us, parts[n].start_us, parts[n].end_us)) for n in mine)
        return pa.Table.from_pandas(pd.concat(done), preserve_index=False)

    if way is Way.DIRECT:
        # One partition a part: the list of them travels with the function, nothing is shuffled.
        return spark.range(0, len(parts), 1, len(parts)).mapInPandas(direct, columns).collect()
    return _rows(spark, path).groupBy("proxy_id").applyInArrow(grouped, columns).collect()


def _rows(spark: SparkSession, path: str) -> DataFrame:
    # Left to guess, Spark takes a proxy whose name has digits only for a number.
    return spark.read.parquet(path).withColumn("proxy_id", F.col("proxy_id").cast("string"))


def _cuts(path: str, proxy_id: str, rows: int, *, by_limits: bool) -> pd.DataFrame:
    try:
        windows = cut(batches_of(path, proxy_id), rows, by_limits=by_limits)
    except (OSError, ImportError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Not to be seen from here, or on a file system that pyarrow does not know; the sum of the rows tells.
        windows = []
    return pd.DataFrame(_table(proxy_id, windows).to_pandas())


def _table(proxy_id: str, windows: Sequence[Window]) -> pa.Table:
    rows = [{"proxy_id": proxy_id} | asdict(window) for window in windows]
    names = [part.split()[0] for part in _WINDOWS.split(", ")]
    types = pa.schema([(name, pa.string() if name == "proxy_id" else pa.int64()) for name in names])
    return pa.Table.from_pylist(rows, schema=types)


def _by_proxy(found: Sequence[Row], names: Sequence[str]) -> dict[str, tuple[Window, ...]]:
    windows: dict[str, tuple[Window, ...]] = dict.fromkeys(names, ())
    for row in sorted(found):
        fields = row.asDict()
        name = fields.pop("proxy_id")
        windows[name] = (*windows[name], Window(**fields))
    return windows
