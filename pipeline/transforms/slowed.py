"""Slowed topics and paused connections: events of the kind `throttle` to the table `slowed`.

Rules: order is that of `seq` within a start of a proxy. A topic is slowed from the event with its rate to its next
event. From version 3 on an event says why, and how many connections are paused. Before that, paused connections are
counted by adding up pauses and taking off releases. A release of none says that nobody is paused. Connections that
ended while they were paused are never released: what is left after the last release before a longer silence counts for
nothing.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from eventlog.schema import THROTTLE_REASONS
from pipeline.core.marks import ADAPTIVE_MARKS, Marks
from pipeline.core.tables.slowed import SLOWED

THROTTLE: Final = "throttle"
MICROS: Final = 1_000_000
HOUR_US: Final = 3600 * MICROS
# Releases come with every sample while memory is below the low mark. A pause so long after the last is a new one.
CARRIED_US: Final = 60 * MICROS
# Events have whole thousandths, and memory may have moved between the signal and the event.
NEAR_PERMILLE: Final = 20
_START: Final = ("proxy_id", "boot_id")
RATES: Final = tuple(f"{kind}_{unit}_per_second" for kind in ("natural", "allowed") for unit in ("bytes", "messages"))
_DECIDED: Final = (
    *_START, "seq", "ts_us AS begin_us", "throttle_by AS throttle", "throttle_topic AS topic",
    "regexp_replace(throttle_action, '^would_', '') AS action", "startswith(throttle_action, 'would_') AS observed",
    "coalesce(throttle_connections, 0) AS connections", "throttle_pressure_permille AS pressure",
    "throttle_ratio_permille AS ratio", "throttle_reasons AS reasons", "throttle_paused AS paused_now",
    "throttle_forgotten AS forgotten", *RATES,
)  # fmt: skip


def slowed(events: DataFrame, marks: Marks = ADAPTIVE_MARKS) -> DataFrame:
    """Return the table `slowed`; `marks` of the adaptive throttle's memory tell its reasons apart."""
    # The last event of any kind: until then the proxy was certainly there.
    ends = events.groupBy(*_START).agg(F.max("ts_us").alias("last_us"))
    decided = events.where((F.col("kind") == THROTTLE) & F.col("throttle_by").isNotNull()).selectExpr(*_DECIDED)
    known = [decided[name].eqNullSafe(ends[name]) for name in _START]
    bounded = decided.join(F.broadcast(ends), known).drop(*(ends[name] for name in _START))
    # A span of no length for each time that topics were forgotten.
    forgotten = bounded.where("action = 'forget'").drop("topic", "connections", "pressure")
    forgotten = forgotten.withColumns({"end_us": F.col("begin_us"), "reason": F.lit("forgotten")})
    spans = _of_topics(bounded, marks).unionByName(_of_connections(bounded), allowMissingColumns=True)
    every = spans.unionByName(forgotten, allowMissingColumns=True)
    return _by_hour(every).select([column.name for column in SLOWED.columns])


def means(names: Sequence[str], weight: Column) -> list[Column]:
    """Return the weighted means of columns, by their names."""
    return [(F.sum(F.col(name) * weight) / F.sum(weight)).alias(name) for name in names]


def _of_topics(decided: DataFrame, marks: Marks) -> DataFrame:
    """Return a span for each rate of a topic."""
    order = Window.partitionBy(*_START, "topic").orderBy("seq")
    # Memory that is not known presses nobody; `least` and `greatest` would pass by a null.
    ratio = F.coalesce(F.col("ratio"), F.lit(0)) / 1000
    pressed = F.greatest(F.lit(0.0), F.least(F.lit(1.0), (ratio - marks.low) / (marks.high - marks.low)))
    by_memory = F.col("pressure") <= 1000 * pressed + NEAR_PERMILLE
    return (
        decided.where("throttle = 'adaptive'")
        .withColumn("end_us", F.coalesce(F.lead("begin_us").over(order), "last_us"))
        .where(F.col("action").isin("activate", "adjust"))
        .withColumn("reason", F.coalesce(_reasons(), F.when(by_memory, "memory").otherwise("backlog")))
        .drop("connections")
    )


def _of_connections(decided: DataFrame) -> DataFrame:
    """Return a span for each number of paused connections."""
    order = Window.partitionBy(*_START).orderBy("seq")
    run = Window.partitionBy(*_START, "run").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    pauses, before = F.col("action") == "pause", F.lag("action").over(order)
    silent = F.col("begin_us") - F.lag("begin_us").over(order) > CARRIED_US
    begins = (
        before.isNull()
        | (F.lag("observed").over(order) != F.col("observed"))
        | (~pauses & (F.col("connections") == 0))
        | (pauses & (before == "resume") & silent)
    )
    change = F.when(pauses, F.col("connections")).otherwise(-F.col("connections"))
    numbered = (
        decided.where("throttle = 'threshold'")
        .withColumn("begins", begins.cast("int"))
        .withColumn("run", F.sum("begins").over(order))
        .withColumn("sum", F.sum(change).over(run))
        # Events that were lost may have been pauses: nobody is paused less than not at all.
        .withColumn("paused", F.col("sum") - F.least(F.lit(0), F.min("sum").over(run)))
    )
    last_of_run = F.coalesce(F.lead("run").over(order) != F.col("run"), F.lit(True))
    spans = {
        "end_us": F.coalesce(F.lead("begin_us").over(order), F.col("last_us")),
        "connections": F.coalesce("paused_now", F.when(~pauses & last_of_run, 0).otherwise(F.col("paused"))),
        "reason": F.coalesce(_reasons(), F.lit("memory")),
    }
    return numbered.withColumns(spans).where("connections > 0").drop("topic", "pressure")


def _reasons() -> Column:
    """Return what presses, by the bits of an event; null before version 3."""
    bits = F.col("reasons")
    names = (F.when(bits.bitwiseAND(1 << bit) > 0, name) for bit, name in enumerate(THROTTLE_REASONS))
    found = F.concat_ws(" and ", *names)
    return F.when(bits.isNotNull(), F.when(found == "", "recovery").otherwise(found))


def _by_hour(spans: DataFrame) -> DataFrame:
    """Cut spans at the hours and add them up."""
    # A clock that went back makes no span negative; one of no length was a decision all the same.
    end = F.greatest("begin_us", F.col("end_us"))
    first, last = (_hour(column) for column in (F.col("begin_us"), F.greatest("begin_us", end - 1)))
    each = spans.withColumn("end_us", end).withColumn("hour_us", F.explode(F.sequence(first, last, F.lit(HOUR_US))))
    inside = F.least("end_us", F.col("hour_us") + HOUR_US) - F.greatest("begin_us", "hour_us")
    cut = each.withColumn("part", inside / MICROS)
    found = cut.groupBy("hour_us", "proxy_id", "throttle", "observed", "topic", "reason").agg(
        F.sum(F.col("part") * F.coalesce("connections", F.lit(1))).alias("seconds"),
        F.count_if(F.col("begin_us") >= F.col("hour_us")).alias("decisions"),
        F.max("connections").alias("most_connections"),
        F.max("pressure").alias("max_pressure_permille"),
        F.max("ratio").alias("max_ratio_permille"),
        F.sum("forgotten").alias("forgotten_topics"),
        *means(RATES, F.greatest("part", F.lit(1 / MICROS))),
    )
    names = F.split(F.substring_index("topic", "://", -1), "/")
    # As the proxy does: two parts of a name without a third are no namespace.
    space = F.when(F.size(names) >= 3, F.concat_ws("/", F.slice(names, 1, 2)))
    start = F.timestamp_micros("hour_us")
    named = {"namespace": space, "tenant": F.substring_index(space, "/", 1)}
    return found.withColumns({"hour_start": start, "date": F.to_date(start)} | named)


def _hour(moment_us: Column) -> Column:
    return moment_us - F.pmod(moment_us, F.lit(HOUR_US))
