"""What a request never showed of itself: that of another, which is like it.

Rule: a request that was refused, or whose client left, gets what it lacks from the last answered request with the same
question, else namespace and mode, else namespace (the first such if there is none before), else the median of its
proxy; what nobody ever showed is 0. Only what such a request needs is sorted, and no further level than one of them
must go to is looked at: `Lack` says which that is, of each proxy.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["MEASURED", "NO_BROKER", "PEAKS", "RULES", "Lack", "lacks", "with_imputed"]

# Columns of `replay_input` that a request may lack; the broker is a hash, the others are numbers.
MEASURED: Final = (
    "estimate_bytes",
    "heap_bytes",
    "direct_bytes",
    "upstream_us",
    "hold_us",
    "write_us",
    "direct_us",
    "broker",
)
NO_BROKER: Final = ""
# Memory in use when a request arrived.
PEAKS: Final = ("heap_used_bytes", "direct_used_bytes")
# Limits in force that are not replayed: the least of each is seen.
RULES: Final = ("unproven_readers_percent", "spill_limit_bytes")
# The hash of a question stands for namespace and mode, too: equal requests have both in common.
_LEVELS: Final = (("mode", "question"), ("mode",), ())


class Lack(IntEnum):
    """How far a proxy's requests must look for what they lack."""

    NOTHING = 0
    LIKE_QUESTION = 1  # every question of one that lacks something was answered at some time
    LIKE_NAMESPACE = 2  # every namespace
    NOBODY = 3


def lacks(requests: DataFrame, *by: str) -> DataFrame:
    """Tell for each proxy, and `by` more columns, how far to look (`lack`), and count its requests (`rows`).

    Also the first and the last arrival, `first_us` and `last_us`, the largest of each of `PEAKS`, the least of each of
    `RULES`, and the clusters. `by` may only make a proxy look further than it must.
    """
    count = requests.groupBy("proxy_id", *by, "namespace", "mode", "question").agg(
        F.count("*").alias("rows"),
        F.min("arrival_us").alias("first_us"),
        F.max("arrival_us").alias("last_us"),
        F.bool_or("imputed").alias("lacks"),
        F.bool_or("shown").alias("shows"),
        *(F.max(name).alias(name) for name in PEAKS),
        F.collect_set("cluster").alias("clusters"),
        *(F.min(name).alias(name) for name in RULES),
    )
    sums = [F.sum("rows").alias("rows"), F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")]
    sums += [F.max(name).alias(name) for name in PEAKS]
    sums += [F.min(name).alias(name) for name in RULES]
    sums.append(F.array_distinct(F.flatten(F.collect_set("clusters"))).alias("clusters"))
    alone = F.col("lacks") & ~F.col("shows")
    each = count.groupBy("proxy_id", *by, "namespace").agg(
        *sums, F.bool_or("lacks").alias("lacks"), F.bool_or("shows").alias("shows"), F.bool_or(alone).alias("alone")
    )
    lack = (
        F.when(F.bool_or(alone), int(Lack.NOBODY))
        .when(F.bool_or("alone"), int(Lack.LIKE_NAMESPACE))
        .when(F.bool_or("lacks"), int(Lack.LIKE_QUESTION))
        .otherwise(int(Lack.NOTHING))
    )
    return each.groupBy("proxy_id", *by).agg(*sums, lack.alias("lack"))


def with_imputed(requests: DataFrame, lack: Mapping[str, Lack]) -> DataFrame:
    """Fill the columns `MEASURED` where a request has none; `lack` says of each proxy how far to look.

    `requests` have `imputed` where they lack something, and `shown` where others may take what theirs is; the frame
    that comes back is without `shown`.
    """
    needy = [proxy_id for proxy_id, each in lack.items() if each]
    if not needy:
        return requests.drop("shown")
    theirs = requests if len(needy) == len(lack) else requests.where(F.col("proxy_id").isin(needy))
    filled = _filled(theirs, max(lack.values()))
    complete = requests.where(~F.col("imputed")).drop("shown")
    return complete.unionByName(filled.select(complete.columns))


def _filled(requests: DataFrame, lack: Lack) -> DataFrame:
    """Give those that lack something, filled."""
    keys = ["proxy_id", "arrival_us", "seq", "namespace", "mode", "question", "shown", *MEASURED]
    others = [name for name in requests.columns if name not in keys]
    # Those that show something are there for that alone.
    pool = requests.where(F.col("imputed") | F.col("shown")).select(
        *keys, F.when(F.col("imputed"), F.struct(*others)).alias("own"), F.lit(None).alias("like")
    )
    levels = _LEVELS[:1] if lack is Lack.LIKE_QUESTION else _LEVELS
    if len(levels) > 1:
        # All lines of a namespace are in one task, so that its rows move once.
        pool = pool.repartition("proxy_id", "namespace")
    for number, level in enumerate(levels):
        if number:
            pool = _where_some_look_on(pool)
        pool = pool.withColumn("like", F.coalesce("like", _like(*level)))
    found = pool.where(F.col("own").isNotNull()).select(*keys, "own.*", "like")
    if lack is Lack.NOBODY:
        typical = requests.where("shown").groupBy("proxy_id").agg(_typical().alias("typical"))
        found = found.join(F.broadcast(typical), "proxy_id", "left").withColumn("like", F.coalesce("like", "typical"))
    nobody = {name: F.xxhash64(F.lit(NO_BROKER)) if name == "broker" else F.lit(0) for name in MEASURED}
    return found.withColumns({name: F.coalesce(name, f"like.{name}", nobody[name]) for name in MEASURED})


def _like(*level: str) -> Column:
    """Find what the last before showed, or the first of all."""
    line = Window.partitionBy("namespace", "proxy_id", *level).orderBy("arrival_us", "seq")
    before = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The whole line, whose first Spark computes once: a frame that begins at each row would cost the square.
    ever = line.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    shown = F.when(F.col("shown"), F.struct(*MEASURED))
    return F.coalesce(F.last(shown, ignorenulls=True).over(before), F.first(shown, ignorenulls=True).over(ever))


def _where_some_look_on(pool: DataFrame) -> DataFrame:
    """Leave out what shows something in namespaces where nobody needs it any more."""
    looks_on = F.col("own").isNotNull() & F.col("like").isNull()
    some = F.bool_or(looks_on).over(Window.partitionBy("namespace", "proxy_id"))
    return pool.withColumn("some", some).where(F.col("own").isNotNull() | F.col("some")).drop("some")


def _typical() -> Column:
    """Make the row in the middle of those that showed all: the median of each number, the most frequent broker."""
    return F.struct(
        *((F.mode(name) if name == "broker" else F.percentile_approx(name, 0.5, 1000)).alias(name) for name in MEASURED)
    )
