"""What memory was seen in use while events were recorded: by topic lists, and by frames for watchers.

Rule: frames for watchers are not replayed, though they take direct memory out of the same limit: the most that they
held at one proxy at one time is added to what lists need.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

WATCH_KINDS: Final = ("watch_init", "watch_update")


@dataclass(frozen=True, slots=True)
class SeenMemory:
    """The most of each memory in use at any one proxy, in bytes; and the largest permit of a frame for watchers.

    And two rules of the proxies that are not replayed: the part of direct memory for clients that have not shown that
    they read (100 is no rule), and the room on disk for lists of slow readers.
    """

    peak_heap_bytes: int = 0
    peak_direct_bytes: int = 0
    peak_watch_bytes: int = 0
    largest_watch_bytes: int = 0
    unproven_readers_percent: int = 100
    spill_limit_bytes: int = 0


NOTHING_SEEN: Final = SeenMemory()


def watch_memory(events: DataFrame) -> tuple[int, int]:
    """Give the most direct memory that watch frames held at one proxy at one time, and that of the largest frame."""
    held = events.where(F.col("kind").isin(*WATCH_KINDS) & (F.col("direct_held_us") > 0)).select(
        "proxy_id",
        (F.col("ts_us") + F.col("total_us")).alias("end_us"),
        "direct_held_us",
        # A permit is never larger than the limit.
        F.when(F.col("direct_limit_bytes") > 0, F.least("direct_bytes", "direct_limit_bytes"))
        .otherwise(F.col("direct_bytes"))
        .alias("size"),
    )
    begin = F.struct((F.col("end_us") - F.col("direct_held_us")).alias("at_us"), F.col("size").alias("change"))
    end = F.struct(F.col("end_us").alias("at_us"), (-F.col("size")).alias("change"))
    steps = held.select("proxy_id", F.explode(F.array(begin, end)).alias("step")).select("proxy_id", "step.*")
    # What ends goes before what begins in the same microsecond.
    line = Window.partitionBy("proxy_id").orderBy("at_us", "change").rowsBetween(Window.unboundedPreceding, 0)
    sums = steps.select("change", F.sum("change").over(line).alias("held"))
    found = sums.agg(F.max("held").alias("peak"), F.max("change").alias("largest")).first()
    assert found is not None
    return int(found["peak"] or 0), int(found["largest"] or 0)
