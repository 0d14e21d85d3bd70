"""Events over time, aggregated in Spark to at most a few thousand rows.

Rule: pure functions from the table `events` and a clock to small frames of Spark; every row of them is for one bin
and one word, and for one value of each column that `by` names. A cost is spread over the time in which it was booked,
which the parts of an event place exactly.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.report.clock import Clock
from pipeline.transforms.memory import KINDS, end_us, spans
from pipeline.transforms.usage import asked_for

LIMITS: Final = tuple(f"{kind}_limit" for kind in KINDS)
# A proxy may be silent at the end for one in so many of all bins, however busy it was before.
_SILENT_PART: Final = 20


def bin_of(clock: Clock, column: Column | None = None) -> Column:
    """Return the number of the bin in which a moment lies."""
    moment = F.col("ts_us") if column is None else column
    number = F.floor((moment - F.lit(clock.origin_us)) / F.lit(clock.step_us))
    return F.greatest(F.lit(0), F.least(number, F.lit(clock.bins - 1))).cast("int")


def proxy_name() -> Column:
    """Return the name of a proxy; one without a name is one proxy."""
    return F.coalesce("proxy_id", F.lit(""))


def memory_use(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Return the mean memory in each bin: columns bin, kind (heap, direct), way (held, waiting), bytes.

    In a group that shared an answer only the event that carries the cost counts, as its memory was booked once.
    """
    begin_us, end_us = F.col("begin_us"), F.col("begin_us") + F.col("length_us")
    bins = F.sequence(bin_of(clock, begin_us), bin_of(clock, end_us - 1))
    begin = F.lit(clock.origin_us) + F.col("bin").cast("long") * F.lit(clock.step_us)
    overlap = F.least(end_us, begin + F.lit(clock.step_us)) - F.greatest(begin_us, begin)
    mean = F.sum(F.col("bytes") * F.greatest(overlap, F.lit(0))) / F.lit(clock.step_us)
    return (
        spans(events, *by)
        .withColumn("bin", F.explode(bins))
        .groupBy("bin", *by, "kind", "way")
        .agg(mean.alias("bytes"))
    )


def use_on_arrival(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Return the fullest moments of each bin: columns bin, heap_share, direct_share (null without a limit)."""
    shares = ((kind, F.col(f"{kind}_used_bytes") / F.nullif(F.col(f"{kind}_limit_bytes"), F.lit(0))) for kind in KINDS)
    fullest = [F.max(share).alias(f"{kind}_share") for kind, share in shares]
    return asked_for(events).groupBy(bin_of(clock).alias("bin"), *by).agg(*fullest)


def limits_in_force(proxies: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Add up the limits of the proxies in each bin: columns bin, heap_limit, direct_limit, bytes; 0 if one has none."""
    sums = (F.when(F.min(name) > 0, F.sum(name)).otherwise(0).alias(name) for name in LIMITS)
    return proxies.groupBy("bin", *by).agg(*sums)


def limits_of_proxies(events: DataFrame, clock: Clock) -> DataFrame:
    """Return the limits of each proxy in each bin: columns proxy, bin, heap_limit, direct_limit.

    A proxy counts from its first arrival to the end of its last request, with the limits that it had said last; to the
    end of all time if it was silent then for no longer than it had been before: it is there, and nobody asked.
    """
    so_far = Window.partitionBy("proxy").orderBy("bin")
    said = (
        events.groupBy(proxy_name().alias("proxy"), bin_of(clock).alias("bin"))
        .agg(
            F.max(bin_of(clock, end_us())).alias("last"),
            *(F.max_by(f"{kind}_limit_bytes", "ts_us").alias(f"{kind}_limit") for kind in KINDS),
        )
        .withColumn("silence", F.col("bin") - F.lag("bin").over(so_far))
    )
    last, end = F.max("last"), F.lit(clock.bins - 1)
    usual = F.greatest(F.max("silence"), F.lit(clock.bins // _SILENT_PART))
    span = F.sequence(F.min("bin"), F.when(end - last <= usual, end).otherwise(last))
    whole = said.groupBy("proxy").agg(span.alias("span")).select("proxy", F.explode("span").alias("bin"))
    return whole.join(said, ["proxy", "bin"], "left").select(
        "proxy", "bin", *(F.last(name, ignorenulls=True).over(so_far).alias(name) for name in LIMITS)
    )


def endings(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Count requests by bin and reason: `ok`, or the outcome and where it came about (bin, reason, requests)."""
    # Without a stage there is no ` in `.
    reason = F.when(F.col("outcome") == "ok", F.lit("ok")).otherwise(F.concat_ws(" in ", "outcome", "outcome_stage"))
    counted = events.where("kind = 'get_topics'").groupBy(bin_of(clock).alias("bin"), *by, reason.alias("reason"))
    return counted.agg(F.count("*").alias("requests"))
