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
from pipeline.transforms.usage import asked_for

KINDS: Final = ("heap", "direct")
LIMITS: Final = tuple(f"{kind}_limit" for kind in KINDS)
# A proxy may be silent at the end for one in so many of all bins, however busy it was before.
_SILENT_PART: Final = 20
_BEFORE_HEAP: Final = ("client_wait_us", "group_wait_us")
_BEFORE_GROWTH: Final = (*_BEFORE_HEAP, "heap_wait_us", "broker_wait_us", "upstream_us")
_BEFORE_DIRECT: Final = (*_BEFORE_GROWTH, "heap_update_wait_us", "read_us", "reader_wait_us")


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
    # Spans are columns first: within `explode` Spark interprets what it cannot compile, at ten times the cost.
    spans = {f"span_{number}": span for number, span in enumerate(_spans())}
    return (
        events.where("carries_cost")
        .select(*by, *(span.alias(name) for name, span in spans.items()))
        .select(*by, F.explode(F.array(*spans)).alias("span"))
        .select(*by, "span.*")
        .where("length_us > 0 and bytes > 0")
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
            F.max(bin_of(clock, _end())).alias("last"),
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


def _spans() -> tuple[Column, ...]:
    """Return when an event held memory and when it waited for some, as spans: kind, way, begin_us, length_us, bytes."""
    estimate, growth_wait = F.col("heap_estimate_bytes"), F.col("heap_update_wait_us")
    # Heap memory went back when direct memory was there, or at the end if it never was.
    heap_end = _end() - _zero("write_us")
    heap_begin = heap_end - _zero("heap_held_us")
    # Then the estimate had grown to the answer; at the end of heap memory if it never did.
    grown = F.greatest(heap_begin, F.least(heap_end, _after(_BEFORE_GROWTH) + growth_wait))
    growth_end = F.when(F.col("heap_actual_bytes").isNull(), heap_end).otherwise(grown)
    # The bytes booked after the growth are what is left of the sum without the estimate before it.
    left = F.col("heap_byte_us") - _zero("heap_estimate_bytes").cast("double") * (growth_end - heap_begin)
    grown_mean = left / F.nullif(heap_end - growth_end, F.lit(0))
    growth = F.col("heap_actual_bytes") - _zero("heap_estimate_bytes")
    held = F.col("direct_held_us")
    direct_mean = F.col("direct_byte_us") / F.nullif(held, F.lit(0))
    return (
        _span("heap", "held", heap_begin, growth_end - heap_begin, estimate),
        _span("heap", "held", growth_end, heap_end - growth_end, grown_mean),
        _span("direct", "held", _end() - _zero("direct_held_us"), held, direct_mean),
        _span("heap", "waiting", _after(_BEFORE_HEAP), F.col("heap_wait_us"), estimate),
        _span("heap", "waiting", _after(_BEFORE_GROWTH), growth_wait, growth),
        _span("direct", "waiting", _after(_BEFORE_DIRECT), F.col("direct_wait_us"), F.col("direct_bytes")),
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
    return sum(map(_zero, parts), F.col("ts_us"))


def _end() -> Column:
    return F.col("ts_us") + F.col("total_us")
