"""From the table `events` to `replay_input`: the requests, sorted by arrival, with what each needed.

Rule: arrivals are those that were recorded, so retries are in the trace already and nothing is added. Values that a
request never showed are those of one like it (`pipeline.replay.imputed`); such rows are marked, and their share is part
of every result. A first pass over the events tells what must be known before they are sorted: limits, proxies, how
many, when. A second one sorts them; the tasks fill the gaps, and write the files themselves where they are on a mounted
directory. The columns of a request: `pipeline.replay.requests`.
Frames for watchers are not replayed, although they take direct memory: nobody asks for them, and they hold nothing up.
The most that they held at one proxy at one time is seen, and the advice has room for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipeline.core.errors import PipelineError
from pipeline.core.model import Limits, Outcome
from pipeline.core.schema import table_schema
from pipeline.core.tables.whatif import LIMIT_COLUMNS, REPLAY_INPUT
from pipeline.replay.imputed import DESCRIBED, HELPERS, MEASURED, Usual, filled, written
from pipeline.replay.requests import LIMIT_EVENTS, NO_BROKER, RULES, WAITED_US, requests_of, work_us
from pipeline.replay.tally import REFUSED
from pipeline.transforms.memory import Peak, peaks

_NUMBERS: Final = tuple(MEASURED)[:-1]
# From the columns of limits to the fields of `Limits`.
LIMIT_NAMES: Final = {column.name: column.name.replace("_limit_bytes", "_bytes") for column in LIMIT_COLUMNS}
# Tasks that read a window leave the other groups of a file alone.
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
# About so many requests of a proxy are sorted and written by one task, which may have several if they come unevenly.
TASK_ROWS: Final = 500_000
_ORDER: Final = ("proxy_id", "arrival_us", "seq")
# A trace with so many requests is small: the driver reads and writes it.
ROWS_HERE: Final = 200_000
# A fleet has a handful; so many are a mistake.
MOST_LIMITS: Final = 1000
MOST_SEEN: Final = 100 * MOST_LIMITS


@dataclass(frozen=True, slots=True)
class ProxyTrace:
    """The extent of one proxy's trace: how many requests, when, and how long one of them can last beyond its waits."""

    proxy_id: str
    rows: int
    first_us: int
    last_us: int
    longest_work_us: int
    largest_heap_bytes: int
    largest_direct_bytes: int
    imputed: int


@dataclass(frozen=True, slots=True)
class SeenMemory:
    """The most of each memory that lists held at any one proxy, in bytes; and that of frames for watchers.

    How many requests waited for memory, or were refused it. And two rules of the proxies that are not replayed: the
    part of direct memory for clients that have not shown that they read (100 is no rule), and the room on disk for
    lists of slow readers.
    """

    peak_heap_bytes: int = 0
    peak_direct_bytes: int = 0
    peak_watch_bytes: int = 0
    largest_watch_bytes: int = 0
    waited: int = 0
    unproven_readers_percent: int = 100
    spill_limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A trace that is ready to be replayed: where it is, the proxies in it, and the limits that were in force."""

    path: str
    proxies: tuple[ProxyTrace, ...]
    limits: dict[int, Limits]
    seen: SeenMemory = SeenMemory()
    # By `limits_id`, how many requests met those limits.
    met: Mapping[int, int] = field(default_factory=dict)
    # The cluster of all events, if they name one.
    cluster: str | None = None

    @property
    def rows(self) -> int:
        return sum(proxy.rows for proxy in self.proxies)

    @property
    def imputed_share(self) -> float:
        """Return the share of requests whose sizes or times are those of others."""
        return sum(proxy.imputed for proxy in self.proxies) / self.rows

    @property
    def usual_limits(self) -> Limits:
        """Return the limits that most requests met."""
        return next(iter(self.limits.values()))

    @property
    def largest(self) -> tuple[int, int]:
        """Return the heap and the direct memory of the largest lists, in bytes."""
        heap = max(proxy.largest_heap_bytes for proxy in self.proxies)
        return heap, max(proxy.largest_direct_bytes for proxy in self.proxies)


def prepare(
    spark: SparkSession, events: DataFrame, path: str, before_writing: Callable[[], None] = lambda: None
) -> Prepared:
    """Write `replay_input` to `path` and describe it; raises PipelineError if there is nothing to replay.

    In plain Parquet, as its readers are no Spark. `before_writing` is called when it is sure that there is something,
    and what was there before is still whole.
    """
    requests = requests_of(events)
    seen = _seen(requests)
    limits, met = _limits(seen)
    # Proxies without the name of a cluster are a cluster, too.
    clusters = sorted({row.cluster or "" for row in seen})
    if len(clusters) > 1:
        raise PipelineError(
            f"--cluster: got none, and events of {', '.join(map(repr, clusters[:5]))}: expected one of them, since"
            " limits are set for the proxies of one cluster"
        )
    held = peaks(events)
    heap = _within(held.get(("lists", "heap"), Peak()), (each.heap_bytes for each in limits.values()))
    direct = _within(held.get(("lists", "direct"), Peak()), (each.direct_bytes for each in limits.values()))
    watch = held.get(("watch", "direct"), Peak())
    waited = sum(row.waited for row in seen)
    rules = (min((row[name] for row in seen if row[name] is not None), default=none) for name, none in RULES.items())
    before_writing()
    return Prepared(
        path,
        _written(spark, requests, seen, path),
        limits,
        SeenMemory(heap, direct, watch.held_bytes, watch.largest_bytes, waited, *rules),
        met,
        clusters[0] or None,
    )


def _within(peak: Peak, limits: Iterable[int]) -> int:
    """Return a peak, at most the largest limit: spans are placed to the microsecond, and memory is not that exact."""
    most = list(limits)
    return min(peak.held_bytes, max(most)) if all(most) else peak.held_bytes


def prepared_before(spark: SparkSession, rows: Sequence[Row], path: str) -> Prepared:
    """Describe what `prepare` wrote, with the rows of the table `replayed`; the same as it gave."""
    limits = {row.limits_id: limits_of(row) for row in rows}
    order = sorted(rows, key=lambda row: (-row.requests, row.limits_id))
    first = order[0]
    seen = seen_of(first)
    met = {row.limits_id: row.requests for row in order}
    return Prepared(path, _describe(spark, path), {name: limits[name] for name in met}, seen, met, first["cluster"])


def seen_of(row: Row) -> SeenMemory:
    """Read what was seen."""
    return SeenMemory(**{each.name: row[each.name] for each in fields(SeenMemory)})


def limits_of(row: Any) -> Limits:
    """Read the columns of limits."""
    return Limits(**{name: row[column] for column, name in LIMIT_NAMES.items()})


def limit_values(limits: Limits) -> dict[str, Any]:
    """Return the columns of limits."""
    return {column: getattr(limits, name) for column, name in LIMIT_NAMES.items()}


def replayed_rows(prepared: Prepared) -> list[dict[str, Any]]:
    """Return the rows of the table `replayed`: the limits that were in force, and the memory that was seen in use."""
    return [
        {"limits_id": limits_id, "requests": prepared.met[limits_id], "cluster": prepared.cluster}
        | limit_values(limits)
        | asdict(prepared.seen)
        for limits_id, limits in prepared.limits.items()
    ]


def replay_input(events: DataFrame) -> DataFrame:
    """Make the table `replay_input`; the rows of a proxy are in the order of arrival."""
    requests = requests_of(events)
    return _filled(events.sparkSession, requests, _seen(requests))


def _written(spark: SparkSession, requests: DataFrame, seen: Sequence[Row], path: str) -> tuple[ProxyTrace, ...]:
    """Write `replay_input`. Every proxy is written anew: those of an earlier run do not stay."""
    if "://" in (place := path.removeprefix("file://")):
        writer = _filled(spark, requests, seen).write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES)
        writer.option("partitionOverwriteMode", "static").partitionBy("proxy_id").parquet(path)
        return _describe(spark, path)
    new = Path(place).with_name(f".{Path(place).name}.new")
    rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    usual, directory = _usual(seen), str(new)
    if sum(row.rows for row in seen) <= ROWS_HERE:
        # Python workers take longer to start than the driver takes for all of it.
        rows = _rows(requests).toArrow().sort_by([(name, "ascending") for name in _ORDER])
        mine = (rows.filter(pc.field("proxy_id") == name).to_batches() for name in usual)
        each = [batch for batches in mine for batch in written(iter(batches), directory, usual)]
        described = spark.createDataFrame(pa.Table.from_batches(each))
    else:
        laid_out = _laid_out(spark, requests, seen)
        described = laid_out.mapInArrow(lambda batches: written(batches, directory, usual), DESCRIBED)
    traces = _traces(described)
    rmtree(place, ignore_errors=True)
    new.rename(place)
    return traces


def _filled(spark: SparkSession, requests: DataFrame, seen: Sequence[Row]) -> DataFrame:
    usual = _usual(seen)
    columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in table_schema(REPLAY_INPUT))
    laid_out = _laid_out(spark, requests, seen)
    return laid_out.mapInArrow(
        lambda pieces: (b for piece in filled(pieces, usual) for b in piece.to_batches()), columns
    )


def _usual(seen: Iterable[Row]) -> Usual:
    """Return, by proxy, the mean of what its requests showed, and a broker; 0 for what they never showed."""
    usual: dict[str, Counter[str]] = {}
    brokers: dict[str, int] = {}
    for row in seen:
        usual.setdefault(row.proxy_id, Counter()).update({name: row[name] or 0 for name in (*_NUMBERS, "shown")})
        if row.broker is not None or row.proxy_id not in brokers:
            brokers[row.proxy_id] = row.nobody if row.broker is None else row.broker
    return {
        proxy_id: {name: sums[name] // max(1, sums["shown"]) for name in _NUMBERS} | {"broker": brokers[proxy_id]}
        for proxy_id, sums in usual.items()
    }


def _seen(requests: DataFrame) -> list[Row]:
    """Look at all requests once: those of each proxy under each set of limits, and what they showed."""
    shown = F.col("shown")
    groups = requests.groupBy("proxy_id", "cluster", "limits_id", *LIMIT_EVENTS.values()).agg(
        F.count("*").alias("rows"),
        F.min("arrival_us").alias("first_us"),
        F.max("arrival_us").alias("last_us"),
        *(F.min(name).alias(name) for name in RULES),
        F.count_if(_waited()).alias("waited"),
        F.count_if(shown).alias("shown"),
        *(F.sum(F.when(shown, F.col(name))).alias(name) for name in _NUMBERS),
        F.max(F.when(shown, F.col("broker"))).alias("broker"),
        F.xxhash64(F.lit(NO_BROKER)).alias("nobody"),
    )
    rows = groups.limit(MOST_SEEN + 1).collect()
    if not rows:
        raise PipelineError("got no event of kind get_topics, expected some: nothing to replay")
    if len(rows) > MOST_SEEN or len({row.limits_id for row in rows}) > MOST_LIMITS:
        raise PipelineError(f"got more than {MOST_LIMITS} sets of limits in the events, expected a few")
    return rows


def _waited() -> Column:
    # A list that is too large is refused without a wait.
    refused = F.col("recorded_outcome").isin(*(int(outcome) for outcome in REFUSED if outcome != Outcome.OVERSIZE))
    return refused | (F.col("recorded_memory_wait_us") >= WAITED_US)


def _limits(seen: Iterable[Row]) -> tuple[dict[int, Limits], dict[int, int]]:
    """Return the limits that were ever in force, by `limits_id`, the most frequent first; and how many met each."""
    counts: Counter[int] = Counter()
    found = {}
    for row in seen:
        counts[row.limits_id] += row.rows
        named = {ours: 1000 * row[name] if name.endswith("_ms") else row[name] for ours, name in LIMIT_EVENTS.items()}
        found[row.limits_id] = Limits(**named)
    met = dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))
    return {limits_id: found[limits_id] for limits_id in met}, met


def _laid_out(spark: SparkSession, requests: DataFrame, seen: Iterable[Row]) -> DataFrame:
    """Divide requests into tasks, each a part of one proxy's time, and sort them there; gaps and helpers included."""
    rows = _rows(requests)
    whole: dict[str, tuple[int, int, int]] = {}
    for row in seen:
        count, first_us, last_us = whole.get(row.proxy_id, (0, row.first_us, row.last_us))
        whole[row.proxy_id] = count + row.rows, min(first_us, row.first_us), max(last_us, row.last_us)
    tasks, number = [], 0
    for proxy_id, (count, first_us, last_us) in sorted(whole.items()):
        slices = -(-count // TASK_ROWS)
        tasks.append((proxy_id, number, first_us, (last_us - first_us) // slices + 1))
        number += slices
    where = spark.createDataFrame(tasks, "proxy_id string, first_task int, begin_us long, slice_us long")
    task = F.col("first_task") + F.expr("(arrival_us - begin_us) div slice_us").cast("int")
    shared = rows.join(F.broadcast(where), "proxy_id").repartitionById(number, task)
    return shared.select(rows.columns).sortWithinPartitions(*_ORDER)


def _rows(requests: DataFrame) -> DataFrame:
    return requests.select(*(column.name for column in REPLAY_INPUT.columns), *HELPERS)


def _describe(spark: SparkSession, path: str) -> tuple[ProxyTrace, ...]:
    """Read what was written before, each row as a part of its own."""
    each = spark.read.parquet(path).select(
        F.col("proxy_id").cast("string").alias("proxy_id"),
        F.lit(1).alias("rows"),
        F.col("arrival_us").alias("first_us"),
        F.col("arrival_us").alias("last_us"),
        work_us("upstream_us", "hold_us", "write_us").alias("longest_work_us"),
        F.col("heap_bytes").alias("largest_heap_bytes"),
        F.col("direct_bytes").alias("largest_direct_bytes"),
        F.col("imputed").cast("int").alias("imputed"),
    )
    return _traces(each)


def _traces(described: DataFrame) -> tuple[ProxyTrace, ...]:
    """Put together what is said of the parts of each proxy."""
    most = ("last_us", "longest_work_us", "largest_heap_bytes", "largest_direct_bytes")
    found = described.groupBy("proxy_id").agg(
        F.min("first_us").alias("first_us"),
        *(F.max(name).alias(name) for name in most),
        *(F.sum(name).alias(name) for name in ("rows", "imputed")),
    )
    return tuple(ProxyTrace(**row.asDict()) for row in found.orderBy("proxy_id").collect())
