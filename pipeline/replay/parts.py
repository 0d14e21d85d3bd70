"""The ways by which tasks come to their parts of `replay_input`: which windows there are, and work on each.

Rule: a task holds one window with its warm-up, whatever the trace is kept on. On a mounted directory tasks read their
parts themselves, with pyarrow and without a shuffle (`Way.DIRECT`); of a small trace the driver does, for whom few
parts take less time than Python workers to start (`Way.HERE`). From any other file system, such as an object store,
Spark reads the trace, repeats the rows of warm-ups, and brings each part to its task, sorted (`Way.SHUFFLED`).
Where a task does not see what a mounted directory holds, the job ends.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, fields
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.replay.slices import COLUMNS, Slice, batches_of, read_slice, slice_of
from pipeline.replay.traces import ROWS_HERE, Prepared
from pipeline.replay.windows import WINDOW_ROWS, Window, cut

_WINDOWS: Final = "proxy_id string, start_us long, end_us long, floor_us long, rows long, limits_id long"
# More parts are shared out among tasks, and so is more work: 10 to 20 seconds of it.
PARTS_HERE: Final = 64
WORK_HERE: Final = 16_000_000
_PARTS: Final = "part int, proxy_id string, warm_us long, start_us long, end_us long"


class Way(Enum):
    """The ways by which tasks come to their requests."""

    HERE = "here"
    DIRECT = "direct"
    SHUFFLED = "shuffled"


@dataclass(frozen=True, slots=True)
class Survey:
    """The way by which tasks come to their requests, and the windows of each proxy."""

    way: Way
    windows: dict[str, tuple[Window, ...]]


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """The part that a task reads: requests of a proxy from `warm_us` to before `end_us`, counted from `start_us`."""

    proxy_id: str
    warm_us: int
    start_us: int
    end_us: int


def way_to(path: str, rows: int, master: str) -> Way:
    """Return the way by which tasks come to the rows of a path, so many."""
    if "://" in path.removeprefix("file://"):
        return Way.SHUFFLED
    # What the driver sees, tasks on other machines may not: they get the parts that are too many for it.
    return Way.HERE if rows <= ROWS_HERE and master.startswith("local") else Way.DIRECT


def survey(
    spark: SparkSession, prepared: Prepared, *, by_limits: bool = False, rows: int = WINDOW_ROWS, way: Way | None = None
) -> Survey:
    """Find the windows of each proxy; raises PipelineError where tasks do not see every request."""
    names, path = [proxy.proxy_id for proxy in prepared.proxies], prepared.path
    way = way or way_to(path, prepared.rows, str(spark.conf.get("spark.master")))

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in (names[number] for batch in batches for number in batch.column("id").to_pylist()):
            # Not to be seen from here; the sum of the rows tells.
            with suppress(FileNotFoundError):
                yield from _table(name, cut(batches_of(path, name), rows, by_limits=by_limits)).to_batches()

    def look_in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name, arrivals in _by_name(batches, "proxy_id"):
            pairs = ((each.column("arrival_us").to_numpy(), each.column("limits_id").to_numpy()) for each in arrivals)
            yield from _table(name, cut(pairs, rows, by_limits=by_limits)).to_batches()

    found: Sequence[tuple[Any, ...]]
    if way is Way.HERE:
        batches = look(iter([pa.RecordBatch.from_pydict({"id": range(len(names))})]))
        found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    elif way is Way.DIRECT:
        found = spark.range(0, len(names), 1, len(names)).mapInArrow(look, _WINDOWS).collect()
    else:
        columns = _rows(spark, path).select("proxy_id", "arrival_us", "limits_id")
        sorted_rows = columns.repartition(len(names), "proxy_id").sortWithinPartitions("proxy_id", "arrival_us")
        found = sorted_rows.mapInArrow(look_in_order, _WINDOWS).collect()
    # A proxy whose rows are not seen has no windows.
    by_name = {name: tuple(Window(*row[1:]) for row in mine) for name, mine in groupby(sorted(found), itemgetter(0))}
    windows = {name: by_name.get(name, ()) for name in names}
    for proxy in prepared.proxies:
        if (seen := sum(window.rows for window in windows[proxy.proxy_id])) != proxy.rows:
            raise PipelineError(
                f"tasks see {seen} of {proxy.rows} requests of {proxy.proxy_id} in {path}: executors on other machines"
                " need --out on a file system that all of them mount, or on an object store",
                ExitCode.FAILED,
            )
    return Survey(way, windows)


def over_parts(
    spark: SparkSession,
    path: str,
    way: Way,
    parts: Sequence[Part],
    work: Callable[[int, Slice], pd.DataFrame],
    columns: str,
) -> DataFrame:
    """Run `work(number, slice)` on each part, in tasks; `columns` are those that it returns. Nothing is collected."""
    if way is Way.HERE and len(parts) <= PARTS_HERE:
        each = [work(number, read_slice(path, *astuple(part))) for number, part in enumerate(parts)]
        return spark.createDataFrame(pa.Table.from_pandas(pd.concat(each), preserve_index=False))
    if way is not Way.SHUFFLED:
        numbered = spark.range(0, len(parts), 1, len(parts)).withColumnRenamed("id", "part")

        def direct(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for batch in batches:
                for number in batch["part"]:
                    part = parts[number]
                    yield work(number, read_slice(path, *astuple(part)))

        return numbered.mapInPandas(direct, columns)
    # The same rows for all that is done with a part: a task does it one after the other.
    whole = sorted(set(parts))
    numbers: dict[Part, list[int]] = {part: [] for part in whole}
    for number, part in enumerate(parts):
        numbers[part].append(number)

    def brought(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, mine in _by_name(batches, "part"):
            part = whole[int(number)]
            one = slice_of(pa.Table.from_batches(list(mine)), part.warm_us, part.start_us, part.end_us)
            done = pd.concat([work(each, one) for each in numbers[part]])
            yield from pa.Table.from_pandas(done, preserve_index=False).to_batches()

    bounds = spark.createDataFrame([(number, *astuple(part)) for number, part in enumerate(whole)], _PARTS)
    rows_of = _rows(spark, path).select("proxy_id", "seq", *COLUMNS)
    within = (F.col("arrival_us") >= F.col("warm_us")) & (F.col("arrival_us") < F.col("end_us"))
    repeated = rows_of.join(F.broadcast(bounds.drop("start_us")), "proxy_id").where(within)
    shared = repeated.repartitionById(len(whole), F.col("part")).sortWithinPartitions("part", "arrival_us", "seq")
    return shared.select("part", *COLUMNS).mapInArrow(brought, columns)


def _by_name(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
    """Cut sorted batches where the name in a column changes; each name's batches must be taken before the next."""
    for name, pieces in groupby(_pieces(batches, column), itemgetter(0)):
        yield name, (piece for _, piece in pieces)


def _pieces(batches: Iterator[pa.RecordBatch], column: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    for batch in batches:
        runs = pc.run_end_encode(batch.column(column))
        ends = runs.run_ends.to_pylist()
        for name, begin, end in zip(runs.values.to_pylist(), [0, *ends], ends, strict=False):
            yield str(name), batch.slice(begin, end - begin)


def _rows(spark: SparkSession, path: str) -> DataFrame:
    # Left to guess, Spark takes a proxy whose name has digits only for a number.
    return spark.read.parquet(path).withColumn("proxy_id", F.col("proxy_id").cast("string"))


def _table(proxy_id: str, windows: Sequence[Window]) -> pa.Table:
    types = pa.schema([("proxy_id", pa.string()), *((field.name, pa.int64()) for field in fields(Window))])
    return pa.Table.from_pylist([{"proxy_id": proxy_id} | asdict(window) for window in windows], schema=types)
