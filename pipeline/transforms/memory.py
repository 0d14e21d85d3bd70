"""When events held memory and when they waited for some: spans, and the most that was held at one time.

Rule: in a group that shared an answer only the event that carries the cost counts, as its memory was booked once. The
parts of an event place its spans; how long direct memory was booked whole its byte-seconds tell, since it may go back
piece by piece while a list is written, or at once when the list goes to disk.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

KINDS: Final = ("heap", "direct")
_BEFORE_HEAP: Final = ("client_wait_us", "group_wait_us")
_BEFORE_GROWTH: Final = (*_BEFORE_HEAP, "heap_wait_us", "broker_wait_us", "upstream_us")
_BEFORE_DIRECT: Final = (*_BEFORE_GROWTH, "heap_update_wait_us", "read_us", "reader_wait_us")


class Peak(NamedTuple):
    """The most bytes that were held at any one proxy at one time, and the most of them that one span had."""

    held_bytes: int = 0
    largest_bytes: int = 0


def spans(events: DataFrame, *by: str) -> DataFrame:
    """Return the spans of events: `by`, kind (heap, direct), way (held, waiting), begin_us, length_us, bytes."""
    # Spans are columns first: within `explode` Spark interprets what it cannot compile, at ten times the cost.
    each = {f"span_{number}": span for number, span in enumerate(_spans())}
    columns = events.where("carries_cost").select(*by, *(span.alias(name) for name, span in each.items()))
    found = columns.select(*by, F.explode(F.array(*each)).alias("span")).select(*by, "span.*")
    return found.where("length_us > 0 AND bytes > 0")


def peaks(events: DataFrame) -> dict[tuple[str, str], Peak]:
    """Return the peaks by what held memory (lists, watch) and its kind (heap, direct), without what nobody held."""
    begin, end = F.col("begin_us"), F.col("begin_us") + F.col("length_us")
    whose = F.when(F.col("kind") == "get_topics", "lists").otherwise("watch")
    held = spans(events.withColumn("whose", whose), "proxy_id", "whose").where("way = 'held'")
    changes = ((begin, F.col("bytes")), (end, -F.col("bytes")))
    both = F.array(*(F.struct(at.alias("at_us"), change.alias("change")) for at, change in changes))
    steps = held.select("proxy_id", "whose", "kind", F.explode(both).alias("step"))
    # Spans that end go before spans that begin in the same microsecond.
    line = Window.partitionBy("proxy_id", "whose", "kind").orderBy("step.at_us", "step.change")
    sums = F.sum("step.change").over(line.rowsBetween(Window.unboundedPreceding, 0))
    each = steps.select("whose", "kind", "step.change", sums.alias("held")).groupBy("whose", "kind")
    found = each.agg(F.max("held").alias("held"), F.max("change").alias("largest")).collect()
    return {(row.whose, row.kind): Peak(round(row.held), round(row.largest)) for row in found}


def end_us() -> Column:
    """Return the microsecond in which an event ended."""
    return F.col("ts_us") + F.col("total_us")


def booked() -> Column:
    """Return the direct memory of a permit, which is never larger than the limit."""
    limit = F.col("direct_limit_bytes")
    return F.when(limit > 0, F.least("direct_bytes", limit)).otherwise(F.col("direct_bytes"))


def _spans() -> tuple[Column, ...]:
    """Return when an event held memory and when it waited for some, as spans: kind, way, begin_us, length_us, bytes."""
    estimate, growth_wait = F.col("heap_estimate_bytes"), F.col("heap_update_wait_us")
    # Heap memory went back when direct memory was there, or at the end if it never was.
    heap_end = end_us() - _zero("write_us")
    heap_begin = heap_end - _zero("heap_held_us")
    # Then the estimate had grown to the answer; at the end of heap memory if it never did.
    grown = F.greatest(heap_begin, F.least(heap_end, _after(_BEFORE_GROWTH) + growth_wait))
    growth_end = F.when(F.col("heap_actual_bytes").isNull(), heap_end).otherwise(grown)
    # The bytes booked after the growth are what is left of the sum without the estimate before it.
    left = F.col("heap_byte_us") - _zero("heap_estimate_bytes").cast("double") * (growth_end - heap_begin)
    grown_mean = left / F.nullif(heap_end - growth_end, F.lit(0))
    growth = F.col("heap_actual_bytes") - _zero("heap_estimate_bytes")
    # Frames for watchers have no stages before their memory, and hold it to their end.
    direct_begin = F.when(F.col("kind") == "get_topics", _after(_BEFORE_DIRECT) + F.col("direct_wait_us")).otherwise(
        end_us() - _zero("direct_held_us")
    )
    whole = F.ceil(F.col("direct_byte_us") / F.nullif(booked(), F.lit(0)))
    return (
        _span("heap", "held", heap_begin, growth_end - heap_begin, estimate),
        _span("heap", "held", growth_end, heap_end - growth_end, grown_mean),
        _span("direct", "held", direct_begin, whole, booked()),
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
