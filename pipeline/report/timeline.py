"""What events say over time, aggregated in Spark to at most a few thousand rows.

Rule: pure functions from the table `events` and a clock to small frames of Spark; every row they give is for one bin
and one word, and for one value of each column that `by` names. A cost is spread over the time in which it was booked,
which the parts of an event place exactly.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.report.clock import Clock
from pipeline.transforms.usage import asked_for

__all__ = [
    "KINDS", "bin_of", "endings", "limits_in_force", "limits_of_proxies", "memory_use", "use_on_arrival", "wait_us",
]  # fmt: skip

KINDS: Final = ("heap", "direct")
_LIMITS: Final = ("heap_limit", "direct_limit")
# Of all bins, those that a proxy may be silent for at the end, however busy it was before.
_SILENT_PART: Final = 20
_BEFORE_HEAP: Final = ("client_wait_us", "group_wait_us")
_BEFORE_GROWTH: Final = (*_BEFORE_HEAP, "heap_wait_us", "broker_wait_us", "upstream_us")
_BEFORE_DIRECT: Final = (*_BEFORE_GROWTH, "heap_update_wait_us", "read_us", "reader_wait_us")


def wait_us() -> Column:
    """Give the time that a request waited for memory, microseconds."""
    return F.col("heap_wait_us") + F.col("heap_update_wait_us") + F.col("direct_wait_us")


def bin_of(clock: Clock, column: Column | None = None) -> Column:
    """Give the number of the bin in which a moment lies."""
    moment = F.col("ts_us") if column is None else column
    number = F.floor((moment - F.lit(clock.origin_us)) / F.lit(clock.step_us))
    return F.greatest(F.lit(0), F.least(number, F.lit(clock.bins - 1))).cast("int")


def memory_use(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Give the mean memory in each bin: columns bin, kind (heap, direct), way (held, waiting), bytes.

    Of a group that shared an answer only the event that carries the cost counts, as its memory was booked once.
    """
    spans = F.array(
        _span("heap", "held", _heap_begin(), _growth_end() - _heap_begin(), F.col("heap_estimate_bytes")),
        _span("heap", "held", _growth_end(), _heap_end() - _growth_end(), _grown_mean()),
        _span("direct", "held", _end() - _zero("direct_held_us"), F.col("direct_held_us"), _mean("direct")),
        _span("heap", "waiting", _after(_BEFORE_HEAP), F.col("heap_wait_us"), F.col("heap_estimate_bytes")),
        _span("heap", "waiting", _after(_BEFORE_GROWTH), F.col("heap_update_wait_us"), _growth()),
        _span("direct", "waiting", _after(_BEFORE_DIRECT), F.col("direct_wait_us"), F.col("direct_bytes")),
    )
    each = (
        events.where("carries_cost")
        .select(*by, F.explode(spans).alias("span"))
        .select(*by, "span.*")
        .where("length_us > 0 and bytes > 0")
    )
    return _mean_in_bins(each, clock, by)


def use_on_arrival(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Give the fullest moments of each bin: columns bin, heap_share, direct_share (null without a limit)."""
    return (
        asked_for(events)
        .select(*by, bin_of(clock).alias("bin"), *(_share(kind).alias(f"{kind}_share") for kind in KINDS))
        .groupBy("bin", *by)
        .agg(*(F.max(name).alias(name) for name in ("heap_share", "direct_share")))
    )


def limits_in_force(proxies: DataFrame, by: Sequence[str] = ()) -> DataFrame:
    """Add up the limits of the proxies in each bin: columns bin, heap_limit, direct_limit, bytes; 0 if one has none."""
    sums = (F.when(F.min(name) > 0, F.sum(name)).otherwise(0).alias(name) for name in _LIMITS)
    return proxies.groupBy("bin", *by).agg(*sums)


def limits_of_proxies(events: DataFrame, clock: Clock) -> DataFrame:
    """Give the limits of each proxy in each bin: columns proxy, bin, heap_limit, direct_limit.

    A proxy counts from its first arrival to the end of its last request, with the limits that it had said last; to the
    end of all time if it was silent then for no longer than it had been before: it is there, and nobody asked.
    """
    so_far = Window.partitionBy("proxy").orderBy("bin")
    said = (
        events.select(
            # A proxy without a name is one proxy.
            F.coalesce("proxy_id", F.lit("")).alias("proxy"),
            bin_of(clock).alias("bin"),
            bin_of(clock, _end()).alias("last"),
            "ts_us",
            *(F.col(f"{kind}_limit_bytes").alias(f"{kind}_limit") for kind in KINDS),
        )
        .groupBy("proxy", "bin")
        .agg(F.max("last").alias("last"), *(F.max_by(name, "ts_us").alias(name) for name in _LIMITS))
        .withColumn("silence", F.col("bin") - F.lag("bin").over(so_far))
    )
    last, end = F.max("last"), F.lit(clock.bins - 1)
    usual = F.greatest(F.max("silence"), F.lit(clock.bins // _SILENT_PART))
    span = F.sequence(F.min("bin"), F.when(end - last <= usual, end).otherwise(last))
    whole = said.groupBy("proxy").agg(span.alias("span")).select("proxy", F.explode("span").alias("bin"))
    return whole.join(said, ["proxy", "bin"], "left").select(
        "proxy", "bin", *(F.last(name, ignorenulls=True).over(so_far).alias(name) for name in _LIMITS)
    )


def endings(events: DataFrame, clock: Clock, by: Sequence[str] = ()) -> DataFrame:
    """Count requests by bin and reason: `ok`, or the outcome and where it came about (bin, reason, requests)."""
    stage = F.when(F.col("outcome_stage").isNull(), F.col("outcome")).otherwise(
        F.concat_ws(" in ", "outcome", "outcome_stage")
    )
    reason = F.when(F.col("outcome") == "ok", F.lit("ok")).otherwise(stage)
    return (
        events.where("kind = 'get_topics'")
        .groupBy(bin_of(clock).alias("bin"), *by, reason.alias("reason"))
        .agg(F.count("*").alias("requests"))
    )


def _mean_in_bins(spans: DataFrame, clock: Clock, by: Sequence[str]) -> DataFrame:
    first, last = bin_of(clock, F.col("begin_us")), bin_of(clock, F.col("begin_us") + F.col("length_us") - 1)
    begin = F.lit(clock.origin_us) + F.col("bin").cast("long") * F.lit(clock.step_us)
    overlap = F.least(F.col("begin_us") + F.col("length_us"), begin + F.lit(clock.step_us)) - F.greatest(
        F.col("begin_us"), begin
    )
    return (
        spans.withColumn("bin", F.explode(F.sequence(first, last)))
        .groupBy("bin", *by, "kind", "way")
        .agg((F.sum(F.col("bytes") * F.greatest(overlap, F.lit(0))) / F.lit(clock.step_us)).alias("bytes"))
    )


def _span(kind: str, way: str, begin: Column, length: Column, bytes_: Column) -> Column:
    return F.struct(
        F.lit(kind).alias("kind"),
        F.lit(way).alias("way"),
        begin.cast("long").alias("begin_us"),
        length.cast("long").alias("length_us"),
        bytes_.cast("double").alias("bytes"),
    )


def _zero(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0))


def _after(parts: tuple[str, ...]) -> Column:
    moment = F.col("ts_us")
    for part in parts:
        moment = moment + _zero(part)
    return moment


def _end() -> Column:
    return F.col("ts_us") + F.col("total_us")


def _heap_end() -> Column:
    """Give when heap memory went back: when direct memory was there, or at the end if it never was."""
    return _end() - _zero("write_us")


def _heap_begin() -> Column:
    return _heap_end() - _zero("heap_held_us")


def _growth_end() -> Column:
    """Give when the estimate had grown to the answer; the end of heap memory if it never did."""
    grown = _after(_BEFORE_GROWTH) + F.col("heap_update_wait_us")
    within = F.greatest(_heap_begin(), F.least(_heap_end(), grown))
    return F.when(F.col("heap_actual_bytes").isNull(), _heap_end()).otherwise(within)


def _grown_mean() -> Column:
    """Give the mean of what was booked after the growth: what is left of the sum without the estimate before it."""
    before = _zero("heap_estimate_bytes") * (_growth_end() - _heap_begin())
    return (F.col("heap_byte_us") - before) / F.nullif(_heap_end() - _growth_end(), F.lit(0))


def _mean(kind: str) -> Column:
    return F.col(f"{kind}_byte_us") / F.nullif(F.col(f"{kind}_held_us"), F.lit(0))


def _growth() -> Column:
    return F.col("heap_actual_bytes") - _zero("heap_estimate_bytes")


def _share(kind: str) -> Column:
    return F.col(f"{kind}_used_bytes") / F.nullif(F.col(f"{kind}_limit_bytes"), F.lit(0))
