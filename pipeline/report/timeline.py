"""Events over time, aggregated in Spark to at most a few thousand rows.

Rule: pure functions from the table `events` and a clock to small frames of Spark; every row of them is for one bin
and one word. A cost is spread over the time in which it was booked,
which the parts of an event place exactly.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.report.clock import Clock
from pipeline.transforms.memory import KINDS, end_us, spans

# A proxy may be silent at the end for one in so many of all bins, however busy it was before.
_SILENT_PART: Final = 20


def bin_of(clock: Clock, column: Column | None = None) -> Column:
    """Return the number of the bin in which a moment lies."""
    moment = F.col("ts_us") if column is None else column
    number = F.floor((moment - F.lit(clock.origin_us)) / F.lit(clock.step_us))
    return F.greatest(F.lit(0), F.least(number, F.lit(clock.bins - 1))).cast("int")


def memory_use(events: DataFrame, clock: Clock) -> DataFrame:
    """Return the mean memory in each bin: columns bin, kind (heap, direct), way (held, waiting), bytes.

    In a group that shared an answer only the event that carries the cost counts, as its memory was booked once.
    """
    begin_us, end_us = F.col("begin_us"), F.col("begin_us") + F.col("length_us")
    bins = F.sequence(bin_of(clock, begin_us), bin_of(clock, end_us - 1))
    begin = F.lit(clock.origin_us) + F.col("bin").cast("long") * F.lit(clock.step_us)
    overlap = F.least(end_us, begin + F.lit(clock.step_us)) - F.greatest(begin_us, begin)
    mean = F.sum(F.col("bytes") * F.greatest(overlap, F.lit(0))) / F.lit(clock.step_us)
    return spans(events).withColumn("bin", F.explode(bins)).groupBy("bin", "kind", "way").agg(mean.alias("bytes"))


def limits_in_force(proxies: DataFrame) -> DataFrame:
    """Add up the limits of the proxies in each bin: columns as `memory_use`, way is `limit`; 0 is none."""
    sums = (F.when(F.min(kind) > 0, F.sum(kind)).otherwise(0).cast("double").alias(kind) for kind in KINDS)
    found = proxies.groupBy("bin").agg(*sums).unpivot("bin", list(KINDS), "kind", "bytes")
    return found.withColumn("way", F.lit("limit"))


def limits_of_proxies(events: DataFrame, clock: Clock) -> DataFrame:
    """Return the limits of each proxy in each bin: columns proxy, bin, heap, direct; bytes.

    A proxy counts from its first arrival to the end of its last request, with the limits that it had said last; to the
    end of all time if it was silent then for no longer than it had been before: it is there, and nobody asked.
    """
    so_far = Window.partitionBy("proxy").orderBy("bin")
    said = (
        events.groupBy(F.coalesce("proxy_id", F.lit("")).alias("proxy"), bin_of(clock).alias("bin"))
        .agg(
            F.max(bin_of(clock, end_us())).alias("last"),
            *(F.max_by(f"{kind}_limit_bytes", "ts_us").alias(kind) for kind in KINDS),
        )
        .withColumn("silence", F.col("bin") - F.lag("bin").over(so_far))
    )
    last, end = F.max("last"), F.lit(clock.bins - 1)
    usual = F.greatest(F.max("silence"), F.lit(clock.bins // _SILENT_PART))
    span = F.sequence(F.min("bin"), F.when(end - last <= usual, end).otherwise(last))
    whole = said.groupBy("proxy").agg(span.alias("span")).select("proxy", F.explode("span").alias("bin"))
    return whole.join(said, ["proxy", "bin"], "left").select(
        "proxy", "bin", *(F.last(kind, ignorenulls=True).over(so_far).alias(kind) for kind in KINDS)
    )


def reason() -> Column:
    """Return how a request ended: `ok`, or the outcome and where it came about."""
    # Without a stage there is no ` in `.
    return F.when(F.col("outcome") == "ok", F.lit("ok")).otherwise(F.concat_ws(" in ", "outcome", "outcome_stage"))
