"""Data of charts over time for one namespace, one proxy, and one namespace at one proxy: aggregated in Spark.

Rule: bounded however many namespaces and proxies there are. The names with most requests have a number, all others are
one; a chooser with many of both has coarser bins. Every event is read once: the whole of a chart is added up from the
same frame as its parts.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Final

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.report.clock import Clock
from pipeline.report.facts import ALL, Choices
from pipeline.report.timeline import KINDS, LIMITS, proxy_name
from pipeline.transforms.histograms import QUANTILES, quantiles

MOST_NAMED: Final = 15
# Bins of all that can be chosen together; each has at most some twenty values.
MOST_CELLS: Final = 12_000
KEYS: Final = ("namespace_rank", "proxy_rank")
_CELL: Final = (*KEYS, "chart", "series", "bin")
_SHOWN: Final = tuple(name for name in QUANTILES if name != "max_us")

Names = tuple[tuple[str, ...], tuple[str, ...]]


def named(events: DataFrame) -> Names:
    """Return the namespaces and the proxies with most requests, the first of them first."""
    lists = events.where("kind = 'get_topics'")
    return _most(lists, F.col("namespace")), _most(lists, proxy_name())


def _most(lists: DataFrame, name: Column) -> tuple[str, ...]:
    counted = lists.groupBy(name.alias("name")).agg(F.count("*").alias("requests")).where("name is not null")
    first = counted.orderBy(F.desc("requests"), "name").limit(MOST_NAMED)
    return tuple(row["name"] for row in first.collect())


def ranked(events: DataFrame, names: Names) -> DataFrame:
    """Add the numbers of their namespaces and proxies to events, as columns."""
    return events.withColumns({KEYS[0]: rank(F.col("namespace"), names[0]), KEYS[1]: rank(proxy_name(), names[1])})


def rank(name: Column, names: Sequence[str]) -> Column:
    """Return the place of a name among these; of any other how many they are."""
    if not names:
        return F.lit(0)
    pairs = [F.lit(word) for place, known in enumerate(names) for word in (known, place)]
    return F.coalesce(F.element_at(F.create_map(*pairs), name), F.lit(len(names)))


def choices_of(
    names: Names,
    clock: Clock,
    memory: DataFrame,
    limits: DataFrame,
    fullness: DataFrame,
    waits: DataFrame,
    endings: DataFrame,
) -> Choices:
    """Collect what can be chosen, from frames by bin and `KEYS`.

    `memory`, `fullness` and `endings` are as `timeline` gives them, `waits` counts by bucket, `limits` has no
    namespace.
    """
    namespaces, proxies = names
    combined = (len(namespaces) + 2) * (len(proxies) + 2)
    fine = -(-clock.bins // max(1, MOST_CELLS // combined))
    bins = F.floor(F.col("bin") / F.lit(fine)).cast("int").alias("bin")
    bins_in = F.least(F.lit(fine), F.lit(clock.bins) - F.col("bin") * F.lit(fine))

    def parts(frame: DataFrame) -> DataFrame:
        """Repeat each row once for itself and once for each of the wholes that it is in, but the whole of all."""
        both = [F.explode(F.array(F.col(name), F.lit(ALL))).alias(name) for name in KEYS]
        rest = [name for name in frame.columns if name not in (*KEYS, "bin")]
        one = frame.select(both[0], KEYS[1], bins, *rest)
        return one.select(KEYS[0], both[1], "bin", *rest).where(f"not ({KEYS[0]} = {ALL} and {KEYS[1]} = {ALL})")

    axes = (*KEYS, "bin")
    held = parts(memory).groupBy(*axes, "kind", "way").agg(F.sum("bytes").alias("bytes"))
    full = parts(fullness).groupBy(*axes).agg(*(F.max(f"{kind}_share").alias(kind) for kind in KINDS))
    full = full.unpivot(axes, KINDS, "kind", "share")
    waited = quantiles(parts(waits), axes).unpivot(axes, _SHOWN, "quantile", "us")
    ended = parts(endings).groupBy(*axes, "reason").agg(F.sum("requests").alias("requests"))
    # Limits of each proxy and of all; none where there was none for some time of the bin.
    each = limits.select(F.lit(ALL).alias(KEYS[0]), KEYS[1], bins, *LIMITS).unpivot(axes, LIMITS, "kind", "limit")
    most = each.groupBy(*axes, "kind").agg(F.max("limit").alias("most"), F.min("limit").alias("least"))
    limited = most.where("least > 0").withColumn("kind", F.substring_index("kind", "_", 1))
    cells = [
        _cells(held, F.col("kind"), F.col("way"), F.col("bytes") / bins_in / F.lit(2**20)),
        _cells(limited, F.col("kind"), F.lit("limit"), F.col("most") / F.lit(2**20)),
        _cells(full, F.lit("fullness"), F.col("kind"), F.col("share")),
        _cells(waited, F.lit("waits"), F.substring_index("quantile", "_", 1), F.col("us") / F.lit(1_000_000)),
        _cells(ended, F.lit("endings"), F.col("reason"), F.col("requests")),
    ]
    found: pd.DataFrame = reduce(DataFrame.unionByName, cells).orderBy(*_CELL).toPandas()
    found = found.rename(columns=dict(zip(KEYS, ("namespace", "proxy"), strict=True)))
    return Choices(clock.coarser(fine), namespaces, proxies, found)


def _cells(frame: DataFrame, chart: Column, series: Column, value: Column) -> DataFrame:
    number = value.cast("double").alias("value")
    return frame.select(*KEYS, chart.alias("chart"), series.alias("series"), "bin", number).where("value is not null")
