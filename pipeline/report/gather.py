"""The tables of the pipeline, aggregated in Spark to what one page shows.

Rule: nothing is collected that is not bounded here: by the bins of the clock, by a rank, or by a limit. The columns of
each frame are named where it is made.
"""

from collections.abc import Callable
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.calibration import PROMISED_MS
from pipeline.core.errors import PipelineError
from pipeline.core.options import CommonSettings
from pipeline.core.periods import ALWAYS, Period, in_period, of_cluster
from pipeline.core.tables import TABLES
from pipeline.core.tables.events import EVENT_KEY
from pipeline.report import timeline
from pipeline.report.clock import Clock, clock_of
from pipeline.report.facts import ALL, COST_MEASURES, Facts, Overview, Slowed
from pipeline.report.gather_choices import KEYS, choices_of, named, rank, ranked
from pipeline.store.history import days_together
from pipeline.store.sinks import open_store
from pipeline.transforms.histograms import bucket, quantiles
from pipeline.transforms.slowed import RATES, THROTTLE, means
from pipeline.transforms.usage import SHARED, is_list, memory_wait

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
MOST_TOPICS: Final = 20
MOST_HOURS: Final = 72
# Each is a line of both charts, of at most 240 points.
MINUTE_US: Final = 60_000_000
OTHER: Final = "other"
LATE: Final = "late"
_KEY_SCHEMA: Final = "proxy_id string, boot_id string, seq bigint"


def gather(spark: SparkSession, common: CommonSettings, period: Period = ALWAYS) -> Facts:
    """Read what the jobs have written, and the events of a period; raises PipelineError if there are no events."""
    store = open_store(spark, common)

    def collected(name: str, collect: Callable[[DataFrame], pd.DataFrame]) -> pd.DataFrame:
        """Collect what the page shows of a table; nothing where no job has written it."""
        table = store.read(TABLES[name])
        return pd.DataFrame() if table is None else collect(table)

    whole, storms, slowed = (store.read(TABLES[name]) for name in ("events", "storms", "slowed"))
    events = None if whole is None else in_period(whole, period)
    overview = None if events is None else overview_of(events)
    if events is None or overview is None:
        raise PipelineError(
            f"--out {common.out}: got no events from {period}, expected the table `events`: run the job ingest"
        )
    advice = collected("advice", _first("-chosen -best -holds memory_bytes", MOST_POINTS))
    largest = collected("storms", _first("-requests storm", MOST_STORMS))
    scenarios = _first("load fleet scenario", MOST_SCENARIOS)
    runs, days = _first("-made_at", MOST_RUNS), _first("-date", MOST_DAYS)
    shown = largest["storm"].tolist() if len(largest) else []
    return Facts(
        out=common.out,
        overview=overview,
        **over_time(events, overview.clock),
        quarantine=collected("quarantine", lambda table: _quarantine(table, events)),
        top_costs=collected("top_costs", _top_costs),
        sharing=collected("sharing", _sharing),
        storms=largest.sort_values("storm", ignore_index=True) if shown else largest,
        storm_count=0 if storms is None else storms.count(),
        members=collected("storm_members", lambda table: _members(table, shown)) if shown else pd.DataFrame(),
        whatif=collected("whatif", lambda table: scenarios(table.drop("wait_buckets"))),
        calibration=collected("calibration", _first("proxy_id", MOST_PROXIES)),
        advice=advice,
        calibrations=collected("calibration_history", lambda table: runs(of_cluster(table, period.cluster))),
        advices=collected("advice_history", lambda table: runs(of_cluster(table, period.cluster))),
        days=collected("limits_by_day", lambda table: days(days_together(of_cluster(table, period.cluster)))),
        slowed=None if slowed is None else _slowed(slowed),
        promised_us=float(advice["promised_wait_us"].iloc[0]) if len(advice) else PROMISED_MS * 1000,
        period="" if period == ALWAYS else str(period),
    )


def _first(order: str, most: int) -> Callable[[DataFrame], pd.DataFrame]:
    """Return what collects the first rows; `order` names columns, with a minus before those that go down."""
    columns = [F.desc(word[1:]) if word.startswith("-") else F.asc(word) for word in order.split()]
    return lambda table: table.orderBy(*columns).limit(most).toPandas()


def overview_of(events: DataFrame) -> Overview | None:
    """Sum up the table `events`; None if it is empty."""
    decisions = F.col("kind") == THROTTLE
    row = events.agg(
        F.min("ts_us").alias("begin_us"),
        F.max(F.col("ts_us") + F.col("total_us")).alias("end_us"),
        F.count_if(is_list()).alias("requests"),
        F.count_if(is_list() & (F.col("outcome") == "ok")).alias("answered"),
        F.count_if(~is_list() & ~decisions).alias("watch_frames"),
        F.coalesce(F.sum("dropped_before"), F.lit(0)).alias("dropped"),
        F.countDistinct("proxy_id").alias("proxies"),
        F.countDistinct("proxy_id", "boot_id").alias("starts"),
        *(
            F.countDistinct(F.when(~decisions & (F.col(name) != ""), F.col(name))).alias(f"{name}s")
            for name in ("tenant", "namespace")
        ),
        *(
            F.coalesce(F.max_by(f"{kind}_limit_bytes", "ts_us"), F.lit(0)).alias(f"{kind}_limit")
            for kind in timeline.KINDS
        ),
    ).collect()[0]
    if row["begin_us"] is None:
        return None
    limits = F.max_by(F.struct("heap_limit_bytes", "direct_limit_bytes"), "ts_us").alias("limits")
    different = events.groupBy("proxy_id").agg(limits).select("limits").distinct().count()
    clock = clock_of(row["begin_us"], row["end_us"])
    return Overview(clock=clock, limits_differ=different > 1, **row.asDict())


def over_time(events: DataFrame, clock: Clock) -> dict[str, Any]:
    """Return the frames by bin: memory, fullness, waits, endings, and what can be chosen of them."""
    names, shares = named(events), [f"{kind}_share" for kind in timeline.KINDS]
    with_ranks = ranked(events, names)
    kept = memory, fullness, waits, endings, proxies = [
        frame.persist()
        for frame in (
            timeline.memory_use(with_ranks, clock, KEYS),
            timeline.use_on_arrival(with_ranks, clock, KEYS),
            _counted_waits(with_ranks, clock),
            timeline.endings(with_ranks, clock, KEYS),
            timeline.limits_of_proxies(events, clock),
        )
    ]
    try:
        whole, rare = _endings(endings)
        each = timeline.limits_in_force(proxies.withColumn(KEYS[1], rank(F.col("proxy"), names[1])), KEYS[1:])
        limits = each.unionByName(timeline.limits_in_force(proxies).withColumn(KEYS[1], F.lit(ALL)))
        common = F.when(F.col("reason").isin(*rare), OTHER).otherwise(F.col("reason"))
        counted = endings.withColumn("reason", common)
        return {
            "memory": _memory(memory, proxies, clock),
            "fullness": fullness.groupBy("bin").agg(*(F.max(name).alias(name) for name in shares)).toPandas(),
            "waits": _waits(waits),
            "endings": whole,
            "choices": choices_of(names, clock, memory, limits, fullness, waits, counted),
        }
    finally:
        for frame in kept:
            frame.unpersist()


def _memory(by_keys: DataFrame, proxies: DataFrame, clock: Clock) -> pd.DataFrame:
    """Return at_ms, when, kind, held_mib, waiting_mib, limit_mib: sums over all proxies."""
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
    answered = events.where("kind = 'get_topics' and outcome = 'ok'")
    bins, buckets = timeline.bin_of(clock).alias("bin"), bucket(memory_wait()).alias("bucket")
    return answered.groupBy(*KEYS, bins, buckets).agg(F.count("*").alias("count"))


def _waits(counted: DataFrame) -> pd.DataFrame:
    """Return bin (null for the whole time), count, p50_us, p95_us, p99_us, max_us of the waits of answered requests."""
    whole = quantiles(counted.withColumn("bin", F.lit(None).cast("int")), ["bin"])
    return quantiles(counted, ["bin"]).unionByName(whole).orderBy("bin").toPandas()


def _endings(by_keys: DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return bin, reason, requests, reasons beyond the commonest as one, and these."""
    frame = by_keys.groupBy("bin", "reason").agg(F.sum("requests").alias("requests")).toPandas()
    others = frame[frame["reason"] != "ok"].groupby("reason")["requests"].sum().sort_values(ascending=False)
    rare = sorted(others.index[MOST_REASONS:])
    frame["reason"] = frame["reason"].where(~frame["reason"].isin(rare), OTHER)
    return frame.groupby(["bin", "reason"])[["requests"]].sum().reset_index(), rare


def _quarantine(table: DataFrame, events: DataFrame) -> pd.DataFrame:
    """Return reason, events; without the late ones that a batch has taken since."""
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
    return int(told.join(taken, keys, "left_semi").agg(F.sum("copies")).collect()[0][0] or 0)


def _top_costs(table: DataFrame) -> pd.DataFrame:
    """Return the rows of the whole time of those measures that the page shows."""
    wanted = table.where((F.col("period") == "whole") & F.col("measure").isin(*COST_MEASURES))
    return wanted.where(F.col("rank") <= MOST_TOP).orderBy("dimension", "measure", "rank").toPandas()


def _sharing(table: DataFrame) -> pd.DataFrame:
    """Return namespace, requests, coalesced and the savings: the largest, and one row (namespace null) for all."""
    sums = [F.sum(name).alias(name) for name in SHARED]
    each = table.groupBy("namespace").agg(*sums).orderBy(F.desc("heap_byte_seconds_saved"), "namespace")
    each = each.where("coalesced > 0")
    whole = table.agg(F.lit(None).cast("string").alias("namespace"), *sums).where("requests is not null")
    return whole.unionByName(each.limit(MOST_NAMESPACES)).toPandas()


def _members(table: DataFrame, storms: list[int]) -> pd.DataFrame:
    shown = F.col("storm").isin(storms) & (F.col("rank") <= MOST_MEMBERS)
    return _first("storm dimension rank", 1000)(table.where(shown))


def _slowed(table: DataFrame) -> Slowed:
    """Return the topics that were slowed longest, and the hours in which most were.

    Topics: topic, observed, reasons, seconds, the rates (means), max_pressure_permille, begin, end (hours). Hours:
    hour_start, throttle, observed, topics, seconds, most_connections, max_pressure_permille, max_ratio_permille.
    """
    forgotten = table.agg(F.sum("forgotten_topics")).collect()[0][0]
    table = table.where("reason <> 'forgotten'")
    seconds = F.sum("seconds").alias("seconds")
    pressure = F.max("max_pressure_permille").alias("max_pressure_permille")
    limited = table.where("throttle = 'adaptive'").groupBy("topic", "observed")
    topics = limited.agg(
        F.array_join(F.array_sort(F.collect_set("reason")), " and ").alias("reasons"),
        seconds,
        *means(RATES, F.greatest("seconds", F.lit(1e-6))),
        pressure,
        F.min("hour_start").alias("begin"),
        F.max("hour_start").alias("end"),
    )
    hours = table.groupBy("hour_start", "throttle", "observed").agg(
        F.countDistinct("topic").alias("topics"),
        seconds,
        # Proxies need not have had their most at one time: an upper bound.
        F.sum("most_connections").alias("most_connections"),
        pressure,
        F.max("max_ratio_permille").alias("max_ratio_permille"),
    )
    longest = topics.orderBy(F.desc("seconds"), "topic", "observed").limit(MOST_TOPICS).toPandas()
    worst = hours.orderBy(F.desc("seconds"), "hour_start", "throttle").limit(MOST_HOURS).toPandas()
    ordered = worst.sort_values(["hour_start", "throttle", "observed"], ignore_index=True)
    count = table.select("topic").where("topic IS NOT NULL").distinct().count()
    return Slowed(longest, ordered, count, int(forgotten or 0))
