"""The tables of the pipeline, aggregated in Spark to what one page shows.

Rule: nothing is collected that is not bounded here: by the bins of the clock, by a rank, or by a limit; a table is read
once. What a page shows is of one cluster. The columns of each row are named where it is made.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.core.buckets import BUCKETS, quantile
from pipeline.core.calibration import PROMISED_MS
from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, DAY_SECONDS, Period, in_period, whole_days
from pipeline.core.tables import Table
from pipeline.core.tables.events import EVENTS, QUARANTINE
from pipeline.core.tables.slowed import SLOWED
from pipeline.core.tables.storms import STORM_MEMBERS, STORMS
from pipeline.core.tables.usage import USAGE
from pipeline.core.tables.whatif import ADVICE, CALIBRATION, REPLAYED
from pipeline.report import timeline
from pipeline.report.clock import Clock, clock_of
from pipeline.report.facts import EVERYBODY, MEASURES, MOST_TOP, SAVED, Advised, Facts, Found, Overview, Recorded
from pipeline.report.parts import Row
from pipeline.report.rankings import DIMENSIONS
from pipeline.store.tables import read
from pipeline.transforms.histograms import bucket
from pipeline.transforms.memory import KINDS, end_us, peaks
from pipeline.transforms.slowed import RATES, THROTTLE, means
from pipeline.transforms.usage import is_list, memory_wait

MOST_STORMS: Final = 20
MOST_MEMBERS: Final = 2
MOST_REASONS: Final = 5
MOST_POINTS: Final = 150
# Each has a part in the error of all.
MOST_PROXIES: Final = 10_000
MOST_QUARANTINE_REASONS: Final = 30
MOST_TOPICS: Final = 20
OTHER: Final = "other"
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_WAITS: Final = (("heap", "heap_wait_us + heap_update_wait_us"), ("direct", "direct_wait_us"))
_SECOND: Final = 1_000_000
_MIB: Final = 2**20
_HOUR_SECONDS: Final = 3600


def gather(spark: SparkSession, common: CommonSettings, period: Period = ALWAYS) -> Facts:
    """Read what the jobs have written, and the events of a period.

    Raises PipelineError if there are no events, or some of several clusters.
    """
    recorded = read(spark, common, EVENTS)
    events = None if recorded is None else in_period(recorded, period)
    overview = None if events is None else overview_of(events, common)
    if events is None or overview is None:
        raise PipelineError(
            f"--out {common.out}: got no events from {period}, expected the table `events`: run the job ingest"
        )
    of = Period(period.since_us, period.until_us, overview.cluster)

    def rows(table: Table, collect: Callable[[DataFrame], DataFrame]) -> list[Row] | None:
        """Collect what the page shows of a table; None where no job has written it."""
        found = read(spark, common, table)
        return None if found is None else [row.asDict(recursive=True) for row in collect(found).collect()]

    members = read(spark, common, STORM_MEMBERS)
    found = Found(
        rankings=rows(USAGE, lambda table: rankings(_touched(table, of, "window_start", F.col("window_seconds")))),
        storms=None
        if members is None
        else rows(STORMS, lambda table: storms(_touched(table, of, "begin", F.col("served_seconds")), members)),
        slowed=rows(SLOWED, lambda table: slowed(_touched(table, of, "hour_start", F.lit(_HOUR_SECONDS)))),
        quarantine=rows(QUARANTINE, _quarantine) or [],
    )
    replayed = rows(REPLAYED, lambda table: table.select("cluster").limit(1))
    # What was replayed last may be of another cluster.
    advised = Advised(none_since="whatif and advise have run for another cluster")
    if not replayed or (replayed[0]["cluster"] or "") == overview.cluster:
        points = rows(ADVICE, _first("-chosen -best -holds memory_bytes", MOST_POINTS)) or []
        advised = Advised(
            points,
            rows(CALIBRATION, _first("proxy_id", MOST_PROXIES)) or [],
            points[0]["promised_wait_us"] if points else PROMISED_MS * 1000,
        )
    time = Period(period.since_us, period.until_us)
    words = "" if time == ALWAYS else str(time)
    return Facts(overview, over_time(events, overview), found, advised, words)


def _first(order: str, most: int) -> Callable[[DataFrame], DataFrame]:
    """Return what chooses the first rows; `order` names columns, with a minus before those that go down."""
    columns = [F.desc(word[1:]) if word.startswith("-") else F.asc(word) for word in order.split()]
    return lambda table: table.orderBy(*columns).limit(most)


def _touched(table: DataFrame, period: Period, start: str, seconds: Column) -> DataFrame:
    """Choose the rows whose time, so many seconds from a column on, has a part in a period."""
    since_us, begin = period.since_us, F.unix_micros(start)
    # What began the day before may last into it.
    early_us = None if since_us is None else since_us - DAY_SECONDS * _SECOND
    rows = whole_days(table, Period(early_us, period.until_us, period.cluster))
    if since_us is not None:
        # An int of an hour's microseconds does not fit.
        rows = rows.where(begin + seconds.cast("double") * _SECOND > since_us)
    return rows if period.until_us is None else rows.where(begin < period.until_us)


def overview_of(events: DataFrame, common: CommonSettings) -> Overview | None:
    """Sum up the table `events`; None if it is empty. Raises PipelineError if it is of several clusters."""
    decisions = F.col("kind") == THROTTLE
    limits = [f"{kind}_limit_bytes" for kind in KINDS]
    cluster = F.coalesce("cluster", F.lit("")).alias("cluster")
    namespace = F.when(~decisions & (F.col("namespace") != ""), F.col("namespace")).alias("namespace")
    added = {
        "requests": F.count_if(is_list()),
        "answered": F.count_if(is_list() & (F.col("outcome") == "ok")),
        **{f"{kind}_wait_us": F.sum(F.when(is_list(), F.expr(sql))) for kind, sql in _WAITS},
        "watch_frames": F.count_if(~is_list() & ~decisions),
        "dropped": F.sum("dropped_before"),
    }
    # First a row for each: to count what differs, Spark copies all rows once for each such count.
    each = events.groupBy(cluster, "proxy_id", "boot_id", namespace, *limits).agg(
        F.min("ts_us").alias("begin_us"),
        F.max("ts_us").alias("last_us"),
        F.max(end_us()).alias("end_us"),
        F.max(F.when(is_list(), memory_wait())).alias("longest_wait_us"),
        *(value.alias(name) for name, value in added.items()),
    )
    (row,) = each.agg(
        F.min("begin_us").alias("begin_us"),
        F.max("end_us").alias("end_us"),
        F.coalesce(F.max("longest_wait_us"), F.lit(0)).alias("longest_wait_us"),
        *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in added),
        F.countDistinct("proxy_id").alias("proxies"),
        F.countDistinct("proxy_id", "boot_id").alias("starts"),
        F.countDistinct("namespace").alias("namespaces"),
        F.collect_set("cluster").alias("clusters"),
        F.max_by(F.struct(*limits), "last_us").alias("limits"),
        (F.countDistinct(*limits) > 1).alias("limits_differ"),
    ).collect()
    if row["begin_us"] is None:
        return None
    figures = row.asDict()
    clusters, (heap, direct) = sorted(figures.pop("clusters")), figures.pop("limits")
    if len(clusters) > 1:
        names = ", ".join(map(repr, clusters))
        raise PipelineError(
            f"--cluster: got none, and --out {common.out} has events of {names}; expected one of them, since a"
            " page is of one cluster"
        )
    clock = clock_of(row["begin_us"], row["end_us"])
    return Overview(clock=clock, cluster=clusters[0], heap_limit=heap, direct_limit=direct, **figures)


def over_time(events: DataFrame, overview: Overview) -> Recorded:
    """Return memory, waits and endings by bin, peaks, and the waits of the whole time."""
    clock = overview.clock
    reason = timeline.reason().alias("reason")
    lists = events.where(is_list()).groupBy(
        timeline.bin_of(clock).alias("bin"), reason, bucket(memory_wait()).alias("bucket")
    )
    counted = lists.agg(F.count("*").alias("requests")).toPandas()
    held = {who: peak.held_bytes for who, peak in peaks(events).items()}
    whole = _quantiles(counted, overview.longest_wait_us)
    return Recorded(
        _memory(events, clock), _waits(counted, overview), _endings(counted), held, whole.get("p50"), whole.get("p99")
    )


def _memory(events: DataFrame, clock: Clock) -> pd.DataFrame:
    """Return bin, at_ms, kind, held_mib, waiting_mib, limit_mib: sums over all proxies."""
    limits = timeline.limits_in_force(timeline.limits_of_proxies(events, clock))
    use = timeline.memory_use(events, clock).unionByName(limits).toPandas()
    frames = []
    for kind in KINDS:
        ways = use[use["kind"] == kind].pivot_table(index="bin", columns="way", values="bytes", aggfunc="sum") / _MIB
        whole = clock.whole(ways.reindex(columns=["held", "waiting", "limit"]).add_suffix("_mib").reset_index(), None)
        limit = whole["limit_mib"].ffill().bfill()
        frames.append(whole.assign(kind=kind, limit_mib=limit).fillna(0))
    return pd.concat(frames)


def _waits(counted: pd.DataFrame, overview: Overview) -> pd.DataFrame:
    """Return bin, at_ms, what, value: quantiles of all requests of a bin, seconds."""
    found = [
        {"bin": number, "at_ms": overview.clock.begin_ms[number], "what": what, "value": us / _SECOND}
        for number, rows in _by_bin(counted)
        for what, us in _quantiles(rows, overview.longest_wait_us).items()
    ]
    return pd.DataFrame(found, columns=["bin", "at_ms", "what", "value"])


def _by_bin(counted: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for number, rows in counted.groupby("bin"):
        yield int(str(number)), rows


def _quantiles(counted: pd.DataFrame, longest_us: int) -> dict[str, float]:
    """Return the quantiles of waits, microseconds; empty without any."""
    if not len(counted):
        return {}
    counts = np.bincount(counted["bucket"] + 1, counted["requests"], BUCKETS).astype(np.int64)
    # The middle of a bucket may be above all that is in it.
    return {what: min(quantile(counts, share), longest_us) for what, share in _QUANTILES.items()}


def _endings(counted: pd.DataFrame) -> pd.DataFrame:
    """Return bin, reason, requests; reasons beyond the commonest are one."""
    common = counted[counted["reason"] != "ok"].groupby("reason")["requests"].sum().nlargest(MOST_REASONS).index
    known = counted["reason"].isin([*common, "ok"])
    named = counted.assign(reason=counted["reason"].where(known, OTHER))
    return named.groupby(["bin", "reason"])[["requests"]].sum().reset_index()


def rankings(usage: DataFrame) -> DataFrame:
    """Return dimension, measure, rank, name, value, share: those who have most of each measure."""
    measures = [*MEASURES, *SAVED]
    everybody = F.struct(F.lit(EVERYBODY).alias("dimension"), F.lit(None).cast("string").alias("name"))
    names = [F.struct(F.lit(dimension).alias("dimension"), F.col(dimension).alias("name")) for dimension in DIMENSIONS]
    values = [F.col(name).cast("double").alias(name) for name in measures]
    named = usage.select(F.explode(F.array(everybody, *names)).alias("who"), *values)
    sums = named.groupBy("who.dimension", "who.name").agg(*(F.sum(name).alias(name) for name in measures))
    each = sums.unpivot(("dimension", "name"), tuple(measures), "measure", "value").where("value > 0")
    group = Window.partitionBy("dimension", "measure")
    rank = F.row_number().over(group.orderBy(F.desc("value"), F.asc_nulls_last("name")))
    share = F.col("value") / F.sum("value").over(group)
    return each.withColumns({"rank": rank, "share": share}).where(F.col("rank") <= MOST_TOP)


def storms(table: DataFrame, members: DataFrame) -> DataFrame:
    """Return the storms with most requests, in the order of time, with `begin_us`, `members` and `of_all`."""
    listed = members.where(F.col("rank") <= MOST_MEMBERS)
    who = F.struct("dimension", "rank", "name", "requests", "refused")
    came = listed.groupBy("date", "cluster", "storm").agg(F.array_sort(F.collect_list(who)).alias("members"))
    largest = table.withColumn("of_all", F.count("*").over(Window.partitionBy()))
    largest = largest.orderBy(F.desc("requests"), "begin").limit(MOST_STORMS)
    same = [largest[name].eqNullSafe(came[name]) for name in ("date", "cluster", "storm")]
    found = largest.join(came, same, "left").select(
        largest["*"],
        F.unix_micros("begin").alias("begin_us"),
        F.coalesce("members", F.array()).alias("members"),
    )
    return found.orderBy("begin").drop("begin", "end")


def slowed(table: DataFrame) -> DataFrame:
    """Return the topics that were slowed longest and, without a topic, all connections.

    Columns: topic, observed, reasons, seconds, the rates (means), max_pressure_permille, max_ratio_permille,
    most_connections, begin_us, end_us (hours), of_all.
    """
    hour = F.unix_micros("hour_start")
    by = ("topic", "observed")
    each = (
        table.where("reason <> 'forgotten'")
        .groupBy(*by)
        .agg(
            F.array_join(F.array_sort(F.collect_set("reason")), " and ").alias("reasons"),
            F.sum("seconds").alias("seconds"),
            *means(RATES, F.greatest("seconds", F.lit(1e-6))),
            F.max("max_pressure_permille").alias("max_pressure_permille"),
            F.max("max_ratio_permille").alias("max_ratio_permille"),
            F.max("most_connections").alias("most_connections"),
            F.min(hour).alias("begin_us"),
            F.max(hour).alias("end_us"),
        )
    )
    counted = each.withColumn("of_all", F.count("topic").over(Window.partitionBy()))
    # Connections are up to two rows, and come first.
    return counted.orderBy(F.col("topic").isNotNull(), F.desc("seconds"), *by).limit(MOST_TOPICS + 2)


def _quarantine(table: DataFrame) -> DataFrame:
    """Return reason, copies."""
    counted = table.groupBy("reason").agg(F.sum("copies").alias("copies"))
    return counted.orderBy(F.desc("copies"), "reason").limit(MOST_QUARANTINE_REASONS)
