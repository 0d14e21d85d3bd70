"""Slowed topics and paused connections: events of the kind `throttle` to the table `slowed`.

Rules: order is that of `seq` within a start of a proxy. A topic is slowed from the event with its rate to its next
event, at most to the last event of that start on that day and the next: so the rows of a day follow from its events and
those of the days beside it. An event says why, and how many connections are paused after it.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from eventlog.schema import THROTTLE_REASONS
from pipeline.core.tables.slowed import SLOWED

THROTTLE: Final = "throttle"
MICROS: Final = 1_000_000
HOUR_US: Final = 3600 * MICROS
_START: Final = ("proxy_id", "boot_id")
RATES: Final = tuple(f"{kind}_{unit}_per_second" for kind in ("natural", "allowed") for unit in ("bytes", "messages"))
_DECIDED: Final = (
    *_START, "date", "cluster", "seq", "ts_us AS begin_us", "throttle_by AS throttle", "throttle_topic AS topic",
    "regexp_replace(throttle_action, '^would_', '') AS action", "startswith(throttle_action, 'would_') AS observed",
    "throttle_pressure_permille AS pressure", "throttle_ratio_permille AS ratio", "throttle_reasons AS reasons",
    "throttle_paused AS paused_now", "throttle_forgotten AS forgotten", *RATES,
)  # fmt: skip


def slowed(events: DataFrame) -> DataFrame:
    """Return the table `slowed`."""
    # The last event of any kind: until then the proxy was certainly there.
    two_days = Window.partitionBy(*_START).orderBy(F.unix_date("date")).rangeBetween(0, 1)
    ends = events.groupBy(*_START, "date").agg(F.max("ts_us").alias("last_us"))
    ends = ends.withColumn("last_us", F.max("last_us").over(two_days))
    decided = events.where((F.col("kind") == THROTTLE) & F.col("throttle_by").isNotNull()).selectExpr(*_DECIDED)
    # All of it in one pass, which costs next to nothing where nobody was slowed.
    line = Window.partitionBy(*_START, "throttle", "topic").orderBy("seq")
    forgotten, of_topic = F.col("action") == "forget", F.col("action").isin("activate", "adjust")
    of_topic &= F.col("throttle") == "adaptive"
    paused = (F.col("throttle") == "threshold") & (F.col("paused_now") > 0)
    spans = {
        # Of no length for each time that topics were forgotten.
        "end_us": F.when(forgotten, F.col("begin_us")).otherwise(F.least(F.lead("begin_us").over(line), "last_us")),
        "reason": F.when(forgotten, "forgotten").otherwise(_reasons()),
        "connections": F.when(paused, F.col("paused_now")),
        "pressure": F.when(of_topic, F.col("pressure")),
    }
    each = decided.join(F.broadcast(ends), [*_START, "date"]).drop("date").withColumns(spans)
    return _by_hour(each.where(forgotten | of_topic | paused)).select([column.name for column in SLOWED.columns])


def means(names: Sequence[str], weight: Column) -> list[Column]:
    """Return the weighted means of columns, by their names."""
    return [(F.sum(F.col(name) * weight) / F.sum(weight)).alias(name) for name in names]


def _reasons() -> Column:
    """Return what presses, by the bits of an event."""
    names = (F.when(F.col("reasons").bitwiseAND(1 << bit) > 0, name) for bit, name in enumerate(THROTTLE_REASONS))
    found = F.concat_ws(" and ", *names)
    return F.when(found == "", "recovery").otherwise(found)


def _by_hour(spans: DataFrame) -> DataFrame:
    """Cut spans at the hours and add them up."""
    # A clock that went back makes no span negative; one of no length was a decision all the same.
    end = F.greatest("begin_us", F.col("end_us"))
    first, last = (_hour(column) for column in (F.col("begin_us"), F.greatest("begin_us", end - 1)))
    each = spans.withColumn("end_us", end).withColumn("hour_us", F.explode(F.sequence(first, last, F.lit(HOUR_US))))
    inside = F.least("end_us", F.col("hour_us") + HOUR_US) - F.greatest("begin_us", "hour_us")
    cut = each.withColumn("part", inside / MICROS)
    found = cut.groupBy("hour_us", "cluster", "proxy_id", "throttle", "observed", "topic", "reason").agg(
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
