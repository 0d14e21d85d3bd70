"""Bursts of arrivals: events to the tables `arrivals`, `storms` and `storm_members`.

Rule: a burst is found in the arrivals of all proxies of a cluster, one count a second, against what was usual in the
seven days to its day: what a storm is does not depend on the days that are looked at. What is said of it comes from the
events of its seconds. Watch frames start no storm: a broker sends them, no client asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.core.tables.storms import ARRIVALS, STORM_MEMBERS, STORMS
from pipeline.transforms.usage import asked_for, is_list, memory_wait

Ints = NDArray[np.int64]

MICROS: Final = 1_000_000
# A longer silence is a fleet that was off, or a recording that was: it would make every hour of work a storm. Before a
# shorter recording there was as much: seconds that are a storm, and all there is, do not say what is usual.
MOST_SILENT_SECONDS: Final = 600
MEMBERS: Final = ("tenant", "namespace", "principal", "client_version", "proxy_id", "broker")
# The days whose arrivals are what is usual.
USUAL_DAYS: Final = 7
DAY_SECONDS: Final = 86_400
REFUSALS: Final = ("timeout", "queue_full", "oversize")
_STORM: Final = ("date", "cluster", "storm")
_SPANS: Final = pa.schema({
    "_cluster": pa.string(), "day": pa.int32(), "storm": pa.int32(), "usual_rate": pa.float64(),
    "peak_rate": pa.int64(), "first": pa.int64(), "last": pa.int64(),
})  # fmt: skip
_USE: Final = ("heap_used_bytes", "direct_used_bytes", "heap_queue_len", "direct_queue_len")


@dataclass(frozen=True, slots=True)
class BurstRule:
    """A burst: seconds with `floor` arrivals and `times` the usual, and at most `gap_seconds` calmer ones between."""

    times: float = 4.0
    floor: int = 50
    gap_seconds: int = 3


USUAL_RULE: Final = BurstRule()


@dataclass(frozen=True, slots=True)
class Burst:
    """Seconds since 1970 from the first to the last, both of them in it; `number` counts those of the first's day."""

    first: int
    last: int
    usual_rate: float
    peak_rate: int
    number: int = 1

    @property
    def day(self) -> int:
        """Return its day, since 1970."""
        return self.first // DAY_SECONDS


def bursts(seconds: Ints, requests: Ints, rule: BurstRule) -> list[Burst]:
    """Find bursts in the seconds, in any order, in which there were requests.

    The usual rate of a day is the median of all seconds of the `USUAL_DAYS` to it, from the first with requests to the
    last, silent ones included: half of them would have to be storms to move it. A silence counts for at most
    `MOST_SILENT_SECONDS`, and so many seconds there are at least: the first of the next day are among them, and what
    then lacks was silent before the first.
    """
    order = np.argsort(seconds)
    seconds, requests = seconds[order], requests[order]
    days = seconds // DAY_SECONDS
    usual = {day: _usual_to(day, seconds, requests) for day in np.unique(days).tolist()}
    least = np.array([max(rule.times * usual[day], rule.floor) for day in days.tolist()])
    hot = np.flatnonzero(requests >= least)
    cuts = np.flatnonzero(np.diff(seconds[hot]) > rule.gap_seconds + 1) + 1
    found: list[Burst] = []
    for part in np.split(hot, cuts):
        if len(part):
            first, last = int(seconds[part[0]]), int(seconds[part[-1]])
            number = found[-1].number + 1 if found and found[-1].day == first // DAY_SECONDS else 1
            most = int(requests[part[0] : part[-1] + 1].max())
            found.append(Burst(first, last, usual[first // DAY_SECONDS], most, number))
    return found


def _usual_to(day: int, seconds: Ints, requests: Ints) -> float:
    begin, end = np.searchsorted(seconds, [(day + 1 - USUAL_DAYS) * DAY_SECONDS, (day + 1) * DAY_SECONDS])
    # A recording that goes on after midnight is no short one.
    end = max(end, np.searchsorted(seconds, seconds[begin] + MOST_SILENT_SECONDS))
    ordered = np.sort(requests[begin:end])
    # Silent seconds are counted, not laid out: a week has 600,000.
    silent = int(np.minimum(np.diff(seconds[begin:end]) - 1, MOST_SILENT_SECONDS).sum())
    silent = max(silent, MOST_SILENT_SECONDS - len(ordered))
    middle = ((silent + len(ordered) - 1) // 2, (silent + len(ordered)) // 2)
    return sum(float(ordered[place - silent]) if place >= silent else 0.0 for place in middle) / 2


def arrivals(events: DataFrame) -> DataFrame:
    """Return the table `arrivals`: what arrived in each second at each proxy."""
    refused = is_list() & F.col("outcome").isin(*REFUSALS)
    counted = {"requests": is_list(), "watch_frames": ~is_list(), "refused": refused}
    each = asked_for(events).groupBy(_second().alias("_second"), "cluster", "proxy_id")
    found = each.agg(
        *(F.count_if(condition).alias(name) for name, condition in counted.items()),
        *(F.max(name).alias(f"max_{name}") for name in _USE),
        *(F.max(name).alias(name) for name in ("heap_limit_bytes", "direct_limit_bytes")),
    )
    second = F.timestamp_seconds("_second")
    dated = found.withColumns({"date": F.to_date(second), "second": second})
    return dated.select([column.name for column in ARRIVALS.columns])


def fleet_seconds(of_proxies: DataFrame) -> DataFrame:
    """Add up `arrivals` over the proxies: cluster, `second` since 1970, and `requests`, none of 0."""
    second = F.unix_seconds("second").alias("second")
    found = of_proxies.groupBy("cluster", second).agg(F.sum("requests").alias("requests"))
    return found.where(F.col("requests") > 0)


def hot_seconds(spark: SparkSession, found: Mapping[str | None, Sequence[Burst]]) -> DataFrame:
    """Return one row for each second of each storm: `_cluster`, `day`, `storm`, the rates, `_second`."""
    spans = [
        {"_cluster": cluster, "day": burst.day, "storm": burst.number} | asdict(burst)
        for cluster, mine in found.items()
        for burst in mine
    ]
    # Of a list Spark makes rows in Python workers: two would start for these alone.
    whole = spark.createDataFrame(pa.Table.from_pylist(spans, _SPANS))
    return whole.withColumn("_second", F.explode(F.sequence("first", "last"))).drop("first", "last")


def storms(events: DataFrame, seconds: DataFrame) -> DataFrame:
    """Return the table `storms`; `seconds` are those of `hot_seconds`, few enough to be sent to every worker."""
    outcome = F.col("outcome")
    counted = {
        "answered": outcome == "ok",
        "refused": outcome.isin(*REFUSALS),
        "cancelled": outcome == "cancelled",
        "questions": F.col("carries_cost"),
    }
    begin, end, served = F.min("ts_us"), F.max("ts_us"), F.max(F.col("ts_us") + F.col("total_us"))
    each = _of_storms(events, seconds).groupBy(*_STORM, "usual_rate", "peak_rate")
    facts = each.agg(
        F.timestamp_micros(begin).alias("begin"),
        F.timestamp_micros(end).alias("end"),
        ((end - begin) / MICROS).alias("arrival_seconds"),
        ((served - begin) / MICROS).alias("served_seconds"),
        F.count("*").alias("requests"),
        *(F.count_if(condition).alias(name) for name, condition in counted.items()),
        *(F.count_distinct(name).alias(f"{name}s") for name in ("principal", "namespace")),
        F.count_distinct("proxy_id").alias("proxies"),
        F.count_distinct("proxy_id", "client_id").alias("clients"),
        *(F.max(name).alias(f"max_{name}") for name in _USE),
        F.max(memory_wait()).alias("max_memory_wait_us"),
    )
    return facts.select([column.name for column in STORMS.columns])


def storm_members(events: DataFrame, seconds: DataFrame, most: int) -> DataFrame:
    """Return the table `storm_members`: for each storm and dimension the `most` with the most requests."""
    names = F.array(*(F.struct(F.lit(name).alias("dimension"), F.col(name).alias("name")) for name in MEMBERS))
    each = _of_storms(events, seconds).select(*_STORM, "outcome", F.explode(names).alias("one"))
    refused = F.count_if(F.col("outcome").isin(*REFUSALS)).alias("refused")
    counted = each.groupBy(*_STORM, "one.dimension", "one.name").agg(F.count("*").alias("requests"), refused)
    group = Window.partitionBy(*_STORM, "dimension").orderBy(F.col("requests").desc(), F.col("name").asc_nulls_last())
    ranked = counted.withColumn("rank", F.row_number().over(group)).where(F.col("rank") <= most)
    return ranked.select([column.name for column in STORM_MEMBERS.columns])


def _of_storms(events: DataFrame, seconds: DataFrame) -> DataFrame:
    asked = events.where(is_list()).drop("date").withColumn("_mine", _second())
    same = (F.col("_mine") == F.col("_second")) & F.col("cluster").eqNullSafe(F.col("_cluster"))
    return asked.join(F.broadcast(seconds), same).withColumn("date", F.date_from_unix_date("day"))


def _second() -> Column:
    return F.expr(f"ts_us div {MICROS}")
