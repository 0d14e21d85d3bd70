"""The tables of the pipeline, aggregated in Spark to what one page shows.

Rule: nothing is collected that is not bounded here: by the bins of the clock, by a rank, or by a limit. The columns of
each frame are named where it is made.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.calibration import PROMISED_MS
from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period, in_period
from pipeline.core.tables import TABLES
from pipeline.core.tables.events import EVENT_KEY
from pipeline.report import gather_slowed, timeline
from pipeline.report.clock import Clock, clock_of
from pipeline.report.facts import ALL, Facts, Overview
from pipeline.report.gather_choices import KEYS, choices_of, kept, named, rank, ranked
from pipeline.store.sinks import open_store
from pipeline.transforms.histograms import bucket, quantiles
from pipeline.transforms.slowed import THROTTLE

__all__ = ["COST_MEASURES", "gather", "over_time"]

COST_MEASURES: Final = ("heap_byte_seconds", "direct_byte_seconds", "requests", "refused")
MOST_TOP: Final = 10
MOST_STORMS: Final = 40
MOST_MEMBERS: Final = 3
MOST_NAMESPACES: Final = 15
MOST_REASONS: Final = 7
MOST_SCENARIOS: Final = 5000
MOST_POINTS: Final = 1500
# Each has a part in the error of all.
MOST_PROXIES: Final = 10_000
MOST_RUNS: Final = 30
MOST_DAYS: Final = 5000
MOST_QUARANTINE_REASONS: Final = 30
OTHER: Final = "other"
LATE: Final = "late"
_KEY_SCHEMA: Final = "proxy_id string, boot_id string, seq bigint"

Open = Callable[[str], DataFrame | None]


def gather(spark: SparkSession, common: CommonSettings, period: Period = ALWAYS) -> Facts:
    """Read what the jobs have written, and the events of a period; raises PipelineError if there are no events."""
    store, out = open_store(spark, common), common.out

    def opened(name: str) -> DataFrame | None:
        return store.read(TABLES[name])

    whole = opened("events")
    events = None if whole is None else in_period(whole, period)
    overview = None if events is None else overview_of(events)
    if events is None or overview is None:
        raise PipelineError(
            f"--out {out}: got no events from {period}, expected the table `events`: run the job ingest"
        )
    clock = overview.clock
    advice = _first(opened("advice"), "-chosen -best -holds memory_bytes", MOST_POINTS)
    storms, storm_count = _storms(opened)
    return Facts(
        out=out,
        overview=overview,
        **over_time(events, clock),
        quarantine=_quarantine(opened, events),
        top_costs=_top_costs(opened),
        sharing=_sharing(opened),
        storms=storms,
        storm_count=storm_count,
        members=_members(opened, storms),
        whatif=_without_buckets(_first(opened("whatif"), "load fleet scenario", MOST_SCENARIOS)),
        calibration=_first(opened("calibration"), "proxy_id", MOST_PROXIES),
        advice=advice,
        calibrations=_first(opened("calibration_history"), "-made_at", MOST_RUNS),
        advices=_first(opened("advice_history"), "-made_at", MOST_RUNS),
        days=_first(opened("limits_by_day"), "-date", MOST_DAYS),
        slowed=gather_slowed.slowed(opened("slowed")),
        marks=gather_slowed.marks(opened("whatif_marks"), clock),
        promised_us=float(advice["promised_wait_us"].iloc[0]) if len(advice) else PROMISED_MS * 1000,
    )


def overview_of(events: DataFrame) -> Overview | None:
    """Sum up the table `events`; None if it is empty."""
    lists, decisions = F.col("kind") == "get_topics", F.col("kind") == THROTTLE

    def number(condition: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, 1).otherwise(0)), F.lit(0))

    row = events.agg(
        F.min("ts_us").alias("begin_us"),
        F.max(F.col("ts_us") + F.col("total_us")).alias("end_us"),
        number(lists).alias("requests"),
        number(lists & (F.col("outcome") == "ok")).alias("answered"),
        number(~lists & ~decisions).alias("watch_frames"),
        F.coalesce(F.sum("dropped_before"), F.lit(0)).alias("dropped"),
        F.countDistinct("proxy_id").alias("proxies"),
        F.countDistinct("proxy_id", "boot_id").alias("starts"),
        F.countDistinct(F.when(~decisions & (F.col("tenant") != ""), F.col("tenant"))).alias("tenants"),
        F.countDistinct(F.when(~decisions & (F.col("namespace") != ""), F.col("namespace"))).alias("namespaces"),
        number(lists & F.col("coalesced")).alias("coalesced"),
        F.max("heap_actual_bytes").alias("largest_heap"),
        F.max("direct_bytes").alias("largest_direct"),
        F.coalesce(F.max_by("heap_limit_bytes", "ts_us"), F.lit(0)).alias("heap_limit"),
        F.coalesce(F.max_by("direct_limit_bytes", "ts_us"), F.lit(0)).alias("direct_limit"),
    ).first()
    assert row is not None
    if row["begin_us"] is None:
        return None
    clock = clock_of(row["begin_us"], row["end_us"])
    return Overview(clock=clock, limits_differ=_limits_differ(events), **row.asDict())


def _limits_differ(events: DataFrame) -> bool:
    limits = F.struct("heap_limit_bytes", "direct_limit_bytes")
    last = events.groupBy("proxy_id").agg(F.max_by(limits, "ts_us").alias("limits"))
    return last.select("limits").distinct().count() > 1


def over_time(events: DataFrame, clock: Clock) -> dict[str, Any]:
    """Give the frames by bin: memory, fullness, waits, endings, and what can be chosen of them."""
    names = named(events)
    with_ranks = ranked(events, names)
    with ExitStack() as stack:
        memory, fullness, waits, endings = (
            stack.enter_context(kept(frame))
            for frame in (
                timeline.memory_use(with_ranks, clock, KEYS),
                timeline.use_on_arrival(with_ranks, clock, KEYS),
                _counted_waits(with_ranks, clock),
                timeline.endings(with_ranks, clock, KEYS),
            )
        )
        proxies = stack.enter_context(kept(timeline.limits_of_proxies(events, clock)))
        whole, rare = _endings(endings)
        common = endings.withColumn("reason", F.when(F.col("reason").isin(*rare), OTHER).otherwise(F.col("reason")))
        choices = choices_of(
            names, clock, memory, _limits(proxies, names[1]), fullness, waits, common if rare else endings
        )
        shares = [F.max(name).alias(name) for name in ("heap_share", "direct_share")]
        return {
            "memory": _memory(memory, proxies, clock),
            "fullness": fullness.groupBy("bin").agg(*shares).toPandas(),
            "waits": _waits(waits),
            "endings": whole,
            "choices": choices,
        }


def _limits(proxies: DataFrame, names: Sequence[str]) -> DataFrame:
    each = timeline.limits_in_force(proxies.withColumn(KEYS[1], rank(F.col("proxy"), names)), KEYS[1:])
    return each.unionByName(timeline.limits_in_force(proxies).withColumn(KEYS[1], F.lit(ALL)))


def _memory(by_keys: DataFrame, proxies: DataFrame, clock: Clock) -> pd.DataFrame:
    """Give at_ms, when, kind, held_mib, waiting_mib, limit_mib: sums over all proxies."""
    use = by_keys.groupBy("bin", "kind", "way").agg(F.sum("bytes").alias("bytes")).toPandas()
    limits = timeline.limits_in_force(proxies).toPandas()
    frames = []
    for kind in timeline.KINDS:
        ways = use[use["kind"] == kind].pivot_table(index="bin", columns="way", values="bytes", aggfunc="sum")
        whole = clock.whole(ways.reindex(columns=["held", "waiting"]).reset_index())
        limit = clock.whole(limits[["bin", f"{kind}_limit"]], None)[f"{kind}_limit"].ffill().bfill().fillna(0)
        frames.append(
            whole.assign(
                kind=kind, held_mib=whole["held"] / 2**20, waiting_mib=whole["waiting"] / 2**20, limit_mib=limit / 2**20
            )
        )
    return pd.concat(frames)[["at_ms", "when", "kind", "held_mib", "waiting_mib", "limit_mib"]]


def _counted_waits(events: DataFrame, clock: Clock) -> DataFrame:
    return (
        events.where("kind = 'get_topics' and outcome = 'ok'")
        .select(*KEYS, timeline.bin_of(clock).alias("bin"), bucket(timeline.wait_us()).alias("bucket"))
        .groupBy(*KEYS, "bin", "bucket")
        .agg(F.count("*").alias("count"))
    )


def _waits(counted: DataFrame) -> pd.DataFrame:
    """Give bin (null for the whole time), count, p50_us, p95_us, p99_us, max_us of the waits of answered requests."""
    whole = quantiles(counted.withColumn("bin", F.lit(None).cast("int")), ["bin"])
    return quantiles(counted, ["bin"]).unionByName(whole).orderBy("bin").toPandas()


def _endings(by_keys: DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Give bin, reason, requests, reasons beyond the commonest as one, and these."""
    frame = by_keys.groupBy("bin", "reason").agg(F.sum("requests").alias("requests")).toPandas()
    others = frame[frame["reason"] != "ok"].groupby("reason")["requests"].sum().sort_values(ascending=False)
    rare = sorted(others.index[MOST_REASONS:])
    frame["reason"] = frame["reason"].where(~frame["reason"].isin(rare), OTHER)
    return frame.groupby(["bin", "reason"])[["requests"]].sum().reset_index(), rare


def _quarantine(opened: Open, events: DataFrame) -> pd.DataFrame:
    """Give reason, events; without the late ones that a batch has taken since."""
    table = opened("quarantine")
    if table is None:
        return pd.DataFrame()
    counted = table.groupBy("reason").agg(F.sum("copies").alias("events"))
    found = counted.orderBy(F.desc("events"), "reason").limit(MOST_QUARANTINE_REASONS).toPandas()
    late = found["reason"] == LATE
    if late.any():
        found.loc[late, "events"] -= _late_but_taken(table.where(F.col("reason") == LATE), events)
    return found[found["events"] > 0].sort_values("events", ascending=False, kind="stable", ignore_index=True)


def _late_but_taken(late: DataFrame, events: DataFrame) -> int:
    # A text that was cut tells no key, and counts as not taken.
    told = late.select(F.from_json("raw", _KEY_SCHEMA).alias("key"), "copies").select("key.*", "copies")
    keys = list(EVENT_KEY)
    # The few stand on the right: Spark sends them round rather than all events.
    taken = events.select(*keys).join(told.select(*keys).distinct(), keys, "left_semi")
    row = told.join(taken, keys, "left_semi").agg(F.coalesce(F.sum("copies"), F.lit(0)).alias("copies")).first()
    assert row is not None
    return int(row["copies"])


def _top_costs(opened: Open) -> pd.DataFrame:
    """Give the rows of the whole time of those measures that the page shows."""
    table = opened("top_costs")
    if table is None:
        return pd.DataFrame()
    wanted = table.where((F.col("period") == "whole") & F.col("measure").isin(*COST_MEASURES))
    return wanted.where(F.col("rank") <= MOST_TOP).orderBy("dimension", "measure", "rank").toPandas()


def _sharing(opened: Open) -> pd.DataFrame:
    """Give namespace, requests, coalesced and the savings: the largest, and one row (namespace null) for all."""
    table = opened("sharing")
    if table is None:
        return pd.DataFrame()
    measures = (
        "requests",
        "coalesced",
        "questions",
        "questions_saved",
        "upstream_bytes_saved",
        "heap_byte_seconds_saved",
    )
    sums = [F.sum(name).alias(name) for name in measures]
    each = table.groupBy("namespace").agg(*sums).orderBy(F.desc("heap_byte_seconds_saved"), "namespace")
    each = each.where("coalesced > 0")
    whole = table.agg(F.lit(None).cast("string").alias("namespace"), *sums).where("requests is not null")
    return whole.unionByName(each.limit(MOST_NAMESPACES)).toPandas()


def _storms(opened: Open) -> tuple[pd.DataFrame, int]:
    """Give the largest storms, in the order of time, and how many there are."""
    table = opened("storms")
    if table is None:
        return pd.DataFrame(), 0
    largest = _first(table, "-requests storm", MOST_STORMS)
    return largest.sort_values("storm", ignore_index=True), table.count()


def _members(opened: Open, storms: pd.DataFrame) -> pd.DataFrame:
    table = opened("storm_members")
    if table is None or not len(storms):
        return pd.DataFrame()
    shown = F.col("storm").isin(storms["storm"].tolist())
    return _first(table.where((F.col("rank") <= MOST_MEMBERS) & shown), "storm dimension rank", 1000)


def _first(table: DataFrame | None, order: str, most: int) -> pd.DataFrame:
    """Collect the first rows; `order` names columns, with a minus before those that go down."""
    if table is None:
        return pd.DataFrame()
    columns = [F.desc(word[1:]) if word.startswith("-") else F.asc(word) for word in order.split()]
    return table.orderBy(*columns).limit(most).toPandas()


def _without_buckets(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns=["wait_buckets"], errors="ignore")
