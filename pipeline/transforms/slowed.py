"""Who was slowed: events of the kind `throttle` to the table `slowed`.

Rules: order is that of `seq` within a start of a proxy. A topic is slowed from the event with its rate to its next
event. From version 3 on an event says why, and how many connections are paused. Before that, paused connections are
counted by adding up pauses and taking off releases. A release of none says that nobody is paused. Connections that
ended while they were paused are never released: what is left after the last release before a longer silence counts for
nothing.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from eventlog.schema import THROTTLE_REASONS
from pipeline.core.marks import ADAPTIVE_MARKS, Marks
from pipeline.core.tables.slowed import SLOWED

__all__ = ["THROTTLE", "slowed"]

THROTTLE: Final = "throttle"
MICROS: Final = 1_000_000
HOUR_US: Final = 3600 * MICROS
# Releases come with every sample while memory is below the low mark. A pause so long after the last is a new one.
CARRIED_US: Final = 60 * MICROS
# Events have whole thousandths, and memory may have moved between the signal and the event.
NEAR_PERMILLE: Final = 20
_START: Final = ("proxy_id", "boot_id")
_RATES: Final = tuple(f"{kind}_{unit}_per_second" for kind in ("natural", "allowed") for unit in ("bytes", "messages"))
_SPAN: Final = (
    "proxy_id", "throttle", "observed", "topic", "reason", "begin_us", "end_us", "connections", "pressure", "ratio",
    "forgotten", *_RATES,
)  # fmt: skip


def slowed(events: DataFrame, marks: Marks = ADAPTIVE_MARKS) -> DataFrame:
    """Give the table `slowed`; `marks` of the adaptive throttle's memory tell its reasons apart."""
    # The last event of any kind: until then the proxy was certainly there.
    ends = events.groupBy(*_START).agg(F.max("ts_us").alias("last_us"))
    decided = events.where((F.col("kind") == THROTTLE) & F.col("throttle_by").isNotNull()).select(
        *_START,
        "seq",
        F.col("ts_us").alias("begin_us"),
        F.col("throttle_by").alias("throttle"),
        F.regexp_replace("throttle_action", "^would_", "").alias("action"),
        F.startswith("throttle_action", F.lit("would_")).alias("observed"),
        F.col("throttle_topic").alias("topic"),
        F.coalesce("throttle_connections", F.lit(0)).alias("connections"),
        F.col("throttle_pressure_permille").alias("pressure"),
        F.col("throttle_ratio_permille").alias("ratio"),
        F.col("throttle_reasons").alias("reasons"),
        F.col("throttle_paused").alias("paused_now"),
        F.col("throttle_forgotten").alias("forgotten"),
        *_RATES,
    )
    known = [decided[name].eqNullSafe(ends[name]) for name in _START]
    bounded = decided.join(F.broadcast(ends), known).drop(*(ends[name] for name in _START))
    spans = _of_topics(bounded, marks).unionByName(_of_connections(bounded)).unionByName(_of_forgotten(bounded))
    return _by_hour(spans).select([column.name for column in SLOWED.columns])


def _of_topics(decided: DataFrame, marks: Marks) -> DataFrame:
    """Give a span for each rate of a topic."""
    order = Window.partitionBy(*_START, "topic").orderBy("seq")
    # Memory that is not known presses nobody; `least` and `greatest` would pass by a null.
    ratio = F.coalesce(F.col("ratio"), F.lit(0)) / 1000
    pressed = F.greatest(F.lit(0.0), F.least(F.lit(1.0), (ratio - marks.low) / (marks.high - marks.low)))
    by_memory = F.col("pressure") <= 1000 * pressed + NEAR_PERMILLE
    return (
        decided.where("throttle = 'adaptive'")
        .withColumn("end_us", F.lead("begin_us").over(order))
        .where(F.col("action").isin("activate", "adjust"))
        .withColumns(
            {
                "end_us": F.coalesce("end_us", "last_us"),
                "reason": F.coalesce(_reasons(), F.when(by_memory, "memory").otherwise("backlog")),
                "connections": F.lit(None).cast("long"),
            }
        )
        .select(*_SPAN)
    )


def _of_connections(decided: DataFrame) -> DataFrame:
    """Give a span for each number of paused connections."""
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
    numbered = (
        decided.where("throttle = 'threshold'")
        .withColumn("begins", begins.cast("int"))
        .withColumn("run", F.sum("begins").over(order))
        .withColumn("change", F.when(pauses, F.col("connections")).otherwise(-F.col("connections")))
        .withColumn("sum", F.sum("change").over(run))
        # Events that were lost may have been pauses: nobody is paused less than not at all.
        .withColumn("paused", F.col("sum") - F.least(F.lit(0), F.min("sum").over(run)))
    )
    last_of_run = F.coalesce(F.lead("run").over(order) != F.col("run"), F.lit(True))
    return (
        numbered.withColumns(
            {
                "end_us": F.coalesce(F.lead("begin_us").over(order), F.col("last_us")),
                "connections": F.coalesce("paused_now", F.when(~pauses & last_of_run, 0).otherwise(F.col("paused"))),
                "topic": F.lit(None).cast("string"),
                "reason": F.coalesce(_reasons(), F.lit("memory")),
                "pressure": F.lit(None).cast("long"),
            }
        )
        .where("connections > 0")
        .select(*_SPAN)
    )


def _of_forgotten(decided: DataFrame) -> DataFrame:
    """Give a span of no length for each time that topics were forgotten."""
    nothing = {"topic": "string", "connections": "long", "pressure": "long"}
    return (
        decided.where("action = 'forget'")
        .withColumns(
            {"end_us": F.col("begin_us"), "reason": F.lit("forgotten")}
            | {name: F.lit(None).cast(kind) for name, kind in nothing.items()}
        )
        .select(*_SPAN)
    )


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
    part = each.withColumn("part", inside / MICROS)
    weight = F.greatest(F.col("part"), F.lit(1 / MICROS))
    means = [(F.sum(F.col(name) * weight) / F.sum(weight)).alias(name) for name in _RATES]
    found = part.groupBy("hour_us", "proxy_id", "throttle", "observed", "topic", "reason").agg(
        F.sum(F.col("part") * F.coalesce("connections", F.lit(1))).alias("seconds"),
        F.count(F.when(F.col("begin_us") >= F.col("hour_us"), 1)).alias("decisions"),
        F.max("connections").alias("most_connections"),
        F.max("pressure").alias("max_pressure_permille"),
        F.max("ratio").alias("max_ratio_permille"),
        F.sum("forgotten").alias("forgotten_topics"),
        *means,
    )
    names = F.split(F.substring_index("topic", "://", -1), "/")
    # As the proxy does: two parts of a name without a third are no namespace.
    space = F.when(F.size(names) >= 3, F.concat_ws("/", F.slice(names, 1, 2)))
    start = F.timestamp_micros("hour_us")
    return found.withColumns({"hour_start": start, "date": F.to_date(start), "namespace": space}).withColumn(
        "tenant", F.substring_index("namespace", "/", 1)
    )


def _hour(moment_us: Column) -> Column:
    return moment_us - F.pmod(moment_us, F.lit(HOUR_US))
