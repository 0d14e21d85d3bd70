"""Who was slowed, and the replay of other marks, aggregated to what one page shows; the rule is that of `gather`."""

from typing import Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.report.clock import Clock
from pipeline.report.facts import Slowed
from pipeline.report.timeline import bin_of

__all__ = ["marks", "slowed"]

MOST_TOPICS: Final = 20
MOST_HOURS: Final = 72
# Each is a line of both charts, of at most 240 points.
MOST_MARKS: Final = 8
MINUTE_US: Final = 60_000_000
_RATES: Final = tuple(f"{kind}_{unit}_per_second" for kind in ("natural", "allowed") for unit in ("bytes", "messages"))


def slowed(table: DataFrame | None) -> Slowed | None:
    """Give the topics that were slowed longest, and the hours in which most were; None if nobody has looked.

    Topics: topic, observed, reasons, seconds, the rates (means), max_pressure_permille, begin, end (hours). Hours:
    hour_start, throttle, observed, topics, seconds, most_connections, max_pressure_permille, max_ratio_permille.
    """
    if table is None:
        return None
    forgotten = table.agg(F.sum("forgotten_topics")).collect()[0][0]
    table = table.where("reason <> 'forgotten'")
    weight = F.greatest("seconds", F.lit(1e-6))
    topics = (
        table.where("throttle = 'adaptive'")
        .groupBy("topic", "observed")
        .agg(
            F.array_join(F.array_sort(F.collect_set("reason")), " and ").alias("reasons"),
            F.sum("seconds").alias("seconds"),
            *((F.sum(F.col(name) * weight) / F.sum(weight)).alias(name) for name in _RATES),
            F.max("max_pressure_permille").alias("max_pressure_permille"),
            F.min("hour_start").alias("begin"),
            F.max("hour_start").alias("end"),
        )
    )
    hours = table.groupBy("hour_start", "throttle", "observed").agg(
        F.countDistinct("topic").alias("topics"),
        F.sum("seconds").alias("seconds"),
        # Proxies need not have had their most at one time: an upper bound.
        F.sum("most_connections").alias("most_connections"),
        F.max("max_pressure_permille").alias("max_pressure_permille"),
        F.max("max_ratio_permille").alias("max_ratio_permille"),
    )
    longest = topics.orderBy(F.desc("seconds"), "topic", "observed").limit(MOST_TOPICS).toPandas()
    worst = hours.orderBy(F.desc("seconds"), "hour_start", "throttle").limit(MOST_HOURS).toPandas()
    ordered = worst.sort_values(["hour_start", "throttle", "observed"], ignore_index=True)
    count = table.select("topic").where("topic IS NOT NULL").distinct().count()
    return Slowed(longest, ordered, count, int(forgotten or 0))


def marks(table: DataFrame | None, clock: Clock) -> pd.DataFrame:
    """Give high, low, bin, at_ms, seconds, pressed_seconds, paused_seconds, pressure, allowed_share, least; or nothing.

    A bin is not shorter than the minute of a row. Seconds are summed over the proxies, the rest are means.
    """
    if table is None:
        return pd.DataFrame()
    wide = Clock(clock.origin_us, max(clock.step_us, MINUTE_US), clock.bins)
    shown = table.select("high", "low").distinct().orderBy("high", "low").limit(MOST_MARKS)
    weight = F.col("seconds")
    found = (
        table.join(F.broadcast(shown), ["high", "low"], "left_semi")
        .groupBy("high", "low", bin_of(wide, F.unix_micros("minute")).alias("bin"))
        .agg(
            *(F.sum(name).alias(name) for name in ("seconds", "pressed_seconds", "paused_seconds")),
            *((F.sum(F.col(name) * weight) / F.sum(weight)).alias(name) for name in ("pressure", "allowed_share")),
            F.max("max_pressure").alias("max_pressure"),
            F.min("least_allowed_share").alias("least"),
        )
        .orderBy("high", "low", "bin")
        .toPandas()
    )
    begins = wide.begin_ms
    return found.assign(at_ms=[begins[number] for number in found["bin"]])
