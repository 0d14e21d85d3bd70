"""Own the columns of a request: what a row of `replay_input` is made of, null where the request showed no value.

For a list that went to one client, byte-seconds by size (`direct_us`) tell what part of its direct memory was held
while it was written; a list that was shared, and stands alone in a scenario, counts whole, which errs on the safe side.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.core.model import LIMIT_KEYS, NEVER, Outcome
from pipeline.replay.imputed import MEASURED
from pipeline.transforms.memory import booked

# A part of a life that was cut short is no measure of it: it counts if the request came past these stages.
_COMPLETE_AFTER: Final[dict[str, tuple[str, ...]]] = {
    "upstream_us": ("heap_update", "read", "reader", "direct", "write"),
    "read_us": ("reader", "direct", "write"),
    "write_us": (),
    "direct_us": (),
}
# A list over HTTP asks for direct memory only, when its answer begins; what reading it took is within the writing.
_NOT_OVER_HTTP: Final = ("heap_estimate_bytes", "heap_actual_bytes", "read_us", "broker")
LIMIT_EVENTS: Final = {name: known.event for name, known in LIMIT_KEYS.items()}
# By outcome and stage; without a stage it is all others.
_ENDED: Final[dict[tuple[str, str | None], Outcome]] = {
    ("ok", None): Outcome.OK,
    ("timeout", None): Outcome.TIMEOUT_OTHER,
    ("timeout", "heap"): Outcome.TIMEOUT_HEAP,
    ("timeout", "heap_update"): Outcome.TIMEOUT_HEAP_UPDATE,
    ("timeout", "direct"): Outcome.TIMEOUT_DIRECT,
    ("queue_full", None): Outcome.QUEUE_FULL_HEAP,
    ("queue_full", "direct"): Outcome.QUEUE_FULL_DIRECT,
    ("oversize", None): Outcome.OVERSIZE,
    ("cancelled", None): Outcome.CANCELLED,
}
NO_BROKER: Final = ""
# Limits in force that are not replayed: the least of each is seen. Proxies of before do not name them, as if there were
# no such rules.
RULES: Final = {"unproven_readers_percent": 100, "spill_limit_bytes": 0}
# A request that nothing keeps waiting takes microseconds to be let in, and a turn of the event loop on a busy machine.
WAITED_US: Final = 10_000


def requests_of(events: DataFrame) -> DataFrame:
    """Make rows of `replay_input`, null where a request showed no value, with what imputing and a look at all go by."""
    return events.where(F.col("kind") == "get_topics").select(
        "proxy_id",
        F.col("ts_us").alias("arrival_us"),
        "seq",
        # A request whose question has no name shares with nobody.
        F.xxhash64(F.coalesce("question_hash", _own_name())).alias("question"),
        F.xxhash64(F.coalesce("client_id", _own_name())).alias("client"),
        F.xxhash64(F.coalesce("principal", F.lit(""))).alias("principal"),
        F.xxhash64("tenant").alias("tenant"),
        F.xxhash64("namespace").alias("namespace"),
        F.xxhash64(F.coalesce("mode", F.lit(""))).alias("mode"),
        *(_measured(theirs).alias(ours) for ours, theirs in MEASURED.items()),
        F.coalesce("cancelled_after_us", F.lit(NEVER)).alias("cancel_us"),
        F.xxhash64(*LIMIT_EVENTS.values()).alias("limits_id"),
        *LIMIT_EVENTS.values(),
        *RULES,
        "cluster",
        _outcome().alias("recorded_outcome"),
        F.greatest(F.lit(0), F.col("total_us") - work_us("upstream_us", "read_us", "write_us")).alias(
            "recorded_wait_us"
        ),
        (F.col("heap_wait_us") + F.col("heap_update_wait_us") + F.col("direct_wait_us")).alias(
            "recorded_memory_wait_us"
        ),
        (~_complete()).alias("imputed"),
        # A list over HTTP shows nothing of heap memory.
        (_complete() & (F.col("broker") != NO_BROKER) & ~_over_http()).alias("shown"),
    )


def _complete() -> Column:
    """Return whether nothing measured is null, by the event's own values, so that filters by it are short.

    A request that was not answered never has them all: the writing is whole only for those that were.
    """
    every, known = (F.col("outcome") == "ok"), F.lit(True)
    for name in MEASURED.values():
        if name in _NOT_OVER_HTTP or name == "upstream_us":
            known = known & F.col(name).isNotNull()
        elif name != "direct_us":  # made of others
            every = every & F.col(name).isNotNull()
    return every & (known | _over_http())


def _over_http() -> Column:
    # Others have a question, unless they ended before they were looked at.
    return F.col("question_hash").isNull() & ~F.col("outcome_stage").eqNullSafe("client")


def _measured(name: str) -> Column:
    value = _direct_us() if name == "direct_us" else F.col(name)
    if name in _COMPLETE_AFTER:
        complete = (F.col("outcome") == "ok") | F.col("outcome_stage").isin(*_COMPLETE_AFTER[name])
        value = F.when(complete, value)
    if name == "direct_bytes":
        # A list that was refused for its size has told it by the heap memory that it would have taken: a little more.
        value = F.coalesce(value, F.when(F.col("outcome") == "oversize", F.col("heap_actual_bytes")))
    if name == "upstream_us":
        # Older proxies asked for the memory of lists over HTTP first: those events have no time of the broker.
        value = F.when(_over_http(), F.coalesce(value, F.lit(0))).otherwise(value)
    if name in _NOT_OVER_HTTP:
        value = F.when(_over_http(), F.lit(NO_BROKER) if name == "broker" else F.lit(0)).otherwise(value)
    # Null has a hash, too.
    return F.when(value.isNotNull(), F.xxhash64(value)) if name == "broker" else value


def _direct_us() -> Column:
    """Return how long all booked memory would have been held to make the byte-seconds of a list for one client."""
    held = F.ceil(F.col("direct_byte_us") / F.when(booked() > 0, booked())).cast("long")
    left_alone = F.col("carries_cost") & (F.col("group_size") == 1) & held.isNotNull() & F.col("write_us").isNotNull()
    return F.when(left_alone, F.least(held, "write_us")).otherwise(F.col("write_us"))


def _own_name() -> Column:
    return F.concat_ws("/", F.col("boot_id"), F.col("seq").cast("string"))


def work_us(*parts: str) -> Column:
    """Return the sum of these times of a request, in microseconds; a time that is null takes none."""
    total = F.lit(0).cast("long")
    for part in parts:
        total = total + F.coalesce(part, F.lit(0))
    return total


def _outcome() -> Column:
    chosen = F.lit(int(Outcome.FAILED))
    for (outcome, stage), ended in _ENDED.items():
        like = F.col("outcome") == outcome
        chosen = F.when(like if stage is None else like & (F.col("outcome_stage") == stage), int(ended)).otherwise(
            chosen
        )
    return chosen.cast("short")
