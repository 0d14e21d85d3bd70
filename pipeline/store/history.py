"""Results of earlier runs, kept: calibrations, advice, limits in force by day; and whether an advice held.

Rule: a run adds a row to the histories and never changes one. Days are made anew from all events of a day, so that a
run over a part of a day does not shorten what is known of it. Whether an advice held is said by the days on which its
limits were in force: requests refused, and the p99 of all waits, against what was promised.
"""

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.core.held import held
from pipeline.core.options import CommonSettings
from pipeline.core.periods import Period, of_cluster, whole_days
from pipeline.core.tables.history import ADVICE_HISTORY, CALIBRATION_HISTORY, LIMITS_BY_DAY
from pipeline.core.tables.table import Table
from pipeline.core.tables.whatif import REPLAYED
from pipeline.store.drift import drift_metrics
from pipeline.store.tables import Row, append, frame_of, on_days, read, replace_where
from pipeline.transforms.histograms import bucket, quantiles

_BY: Final = ("date", "cluster", "proxy_id", "heap_limit_bytes", "direct_limit_bytes")
# At most so many rows of each history, the latest: years of days, of which each has a handful of limits.
MOST_ROWS: Final = 5000
_REFUSED: Final = ("timeout", "queue_full", "oversize")


def keep_days(spark: SparkSession, common: CommonSettings, events: DataFrame, period: Period) -> None:
    """Make the rows of `limits_by_day` anew for the days of a period; others stay."""
    rows = limits_by_day(whole_days(events, period)).persist()
    found = rows.select("date", "cluster").distinct().collect()
    if not found:
        return
    days = on_days(sorted({row.date for row in found}))
    # A cluster without a name is one, too.
    of = " OR ".join(f"cluster <=> {_literal(name)}" for name in {row.cluster for row in found})
    replace_where(common, LIMITS_BY_DAY, rows.coalesce(1), f"{days} AND ({of})")
    rows.unpersist()


def _literal(name: str | None) -> str:
    return "NULL" if name is None else "'{}'".format(name.replace("\\", "\\\\").replace("'", "\\'"))


def limits_by_day(events: DataFrame) -> DataFrame:
    """Return the table of that name for these events."""
    # Null is a cluster, too: nothing is joined by it.
    lists = events.where(F.col("kind") == "get_topics").fillna("", "cluster")
    work = sum((F.coalesce(F.col(name), F.lit(0)) for name in ("upstream_us", "read_us", "write_us")), F.lit(0))
    wait = F.greatest(F.lit(0), F.col("total_us") - work)
    each = lists.select(
        *_BY,
        F.when(F.col("outcome") == "ok", bucket(wait)).alias("bucket"),
        F.when(F.col("outcome").isin(*_REFUSED), 1).otherwise(0).alias("refused"),
    )
    counted = each.groupBy(*_BY, "bucket").agg(F.count("*").alias("count"), F.sum("refused").alias("refused"))
    answered = F.col("bucket").isNotNull()
    waits = quantiles(counted.where(answered).select(*_BY, "bucket", "count"), list(_BY), {"wait_p99_us": 0.99})
    totals = counted.groupBy(*_BY).agg(
        F.sum("count").alias("requests"),
        F.coalesce(F.sum(F.when(answered, F.col("count"))), F.lit(0)).alias("answered"),
        F.sum("refused").alias("refused"),
    )
    both = totals.join(waits.drop("count"), list(_BY), "left").fillna(0.0, "wait_p99_us")
    named = both.withColumn("cluster", F.nullif(F.col("cluster"), F.lit("")))
    return named.select([column.name for column in LIMITS_BY_DAY.columns])


def add_row(spark: SparkSession, common: CommonSettings, table: Table, row: Row) -> None:
    """Add a row to a history."""
    append(common, table, frame_of(spark, table, [row]))


def days_together(by_proxy: DataFrame) -> DataFrame:
    """Return `limits_by_day` with the proxies that had the same limits together, and the worst of their waits.

    A fleet of a thousand proxies has as few rows a day as one of two: a bound on rows is a bound on days.
    """
    sums = (F.sum(name).alias(name) for name in ("requests", "answered", "refused"))
    by = [name for name in _BY if name != "proxy_id"]
    return by_proxy.groupBy(*by).agg(*sums, F.max("wait_p99_us").alias("wait_p99_us"))


def drift_of(spark: SparkSession, common: CommonSettings, cluster: str | None = None) -> CollectorRegistry:
    """Return the drift as metrics, from what is kept and what was replayed last; of one cluster where it is given."""

    def rows(table: Table, order: str, as_shown: Callable[[DataFrame], DataFrame] = lambda frame: frame) -> list[Row]:
        frame = read(spark, common, table)
        if frame is None:
            return []
        latest = as_shown(of_cluster(frame, cluster)).orderBy(F.desc(order)).limit(MOST_ROWS)
        return [row.asDict() for row in latest.collect()]

    calibrations, advices = rows(CALIBRATION_HISTORY, "made_at"), rows(ADVICE_HISTORY, "made_at")
    days = rows(LIMITS_BY_DAY, "date", days_together)
    outcomes = (held(advice, days) for advice in advices)
    in_force = next((each for each in outcomes if each.days), None)
    usual = next(iter(rows(REPLAYED, "requests")), None)
    latest = next(iter(calibrations), None), next(iter(advices), None)
    return drift_metrics(*latest, usual, in_force, cluster)
