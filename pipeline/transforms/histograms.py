"""Histograms of waits as Spark columns and frames; what a bucket is, buckets.py says.

Rule: a histogram is rows of (…, bucket, count), so that merging is a sum and nothing needs a user-defined function or
a sketch.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.core.buckets import NO_WAIT, PER_OCTAVE, TINY

QUANTILES: Final[Mapping[str, float]] = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99, "max_us": 1.0}


def bucket(us: Column) -> Column:
    """Return the bucket of a wait in microseconds, as int."""
    power = F.floor(F.lit(float(PER_OCTAVE)) * F.log2(us.cast("double")) + F.lit(TINY)).cast("int")
    return F.when(us > 0, power).otherwise(F.lit(NO_WAIT))


def middle(of: Column) -> Column:
    """Return the microseconds that stand for a bucket, as double."""
    value = F.pow(F.lit(2.0), (of.cast("double") + F.lit(0.5)) / F.lit(float(PER_OCTAVE)))
    return F.when(of == NO_WAIT, F.lit(0.0)).otherwise(value)


def quantiles(waits: DataFrame, by: Sequence[str], shares: Mapping[str, float] = QUANTILES) -> DataFrame:
    """Return one row for each `by`: `count`, and for each name in `shares` its quantile in us, at most 4.5 % off.

    `waits` has the columns `bucket` and `count`, as the table of that name; the answer is by nearest rank.
    """
    merged = waits.groupBy(*by, "bucket").agg(F.sum("count").alias("count"))
    whole = Window.partitionBy(*by)
    seen = F.sum("count").over(whole.orderBy("bucket"))
    placed = merged.withColumns({"_all": F.sum("count").over(whole), "_seen": seen})
    found = [
        middle(F.min(F.when(F.col("_seen") >= F.ceil(F.col("_all") * share - TINY), F.col("bucket")))).alias(name)
        for name, share in shares.items()
    ]
    return placed.groupBy(*by).agg(F.sum("count").alias("count"), *found)
