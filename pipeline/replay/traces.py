"""From the table `events` to `replay_input`: the requests, sorted by arrival, with what each needed.

Rule: arrivals are those that were recorded, so retries are in the trace already and nothing is added. A request that
was refused, or whose client left, never showed its size or its times: they are imputed from the last answered request
with the same question, else namespace and mode, else namespace (the first such if there is none before), else they are
the median of its proxy; what nobody ever showed is 0. Such rows are marked, and their share is part of every result.
Of a list that went to one client, byte-seconds by size (`direct_us`) tell what part of its direct memory was held while
it was written; a list that was shared, and stands alone in a scenario, counts whole, which errs on the safe side.
Frames for watchers are not replayed, although they take direct memory: nobody asks for them, and they hold nothing up.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pipeline.errors import PipelineError
from pipeline.replay.model import NEVER, Limits, Outcome
from pipeline.tables.whatif import REPLAY_INPUT

__all__ = ["Prepared", "ProxyTrace", "prepare", "prepared_before", "recorded_limits", "replay_input", "with_imputed"]

# The value of the event, and what stands for it where nobody ever showed one.
_MEASURED: Final[dict[str, str]] = {
    "estimate_bytes": "heap_estimate_bytes",
    "heap_bytes": "heap_actual_bytes",
    "direct_bytes": "direct_bytes",
    "upstream_us": "upstream_us",
    "hold_us": "read_us",
    "write_us": "write_us",
    "direct_us": "direct_us",
    "broker_name": "broker",
}
_LEVELS: Final = (("question",), ("namespace_name", "mode"), ("namespace_name",))
# A part of a life that was cut short is no measure of it: it counts if the request came past these stages.
_COMPLETE_AFTER: Final[dict[str, tuple[str, ...]]] = {
    "upstream_us": ("heap_update", "read", "reader", "direct", "write"),
    "read_us": ("reader", "direct", "write"),
    "write_us": (),
    "direct_us": (),
}
# A list over HTTP asks for direct memory only; what its broker took is within the writing.
_NOT_OVER_HTTP: Final = ("heap_estimate_bytes", "heap_actual_bytes", "upstream_us", "read_us", "broker")
_LIMITS: Final[dict[str, str]] = {
    "heap_bytes": "heap_limit_bytes",
    "direct_bytes": "direct_limit_bytes",
    "heap_timeout_us": "heap_timeout_ms",
    "direct_timeout_us": "direct_timeout_ms",
    "heap_queue": "heap_queue_max",
    "direct_queue": "direct_queue_max",
    "request_timeout_us": "request_timeout_ms",
    "max_outstanding_per_broker": "max_outstanding_per_broker",
    "coalescing": "coalescing",
    "fairness": "fairness",
    "key_cap_percent": "key_cap_percent",
}
_STAGED: Final[dict[tuple[str, str], Outcome]] = {
    ("timeout", "heap"): Outcome.TIMEOUT_HEAP,
    ("timeout", "heap_update"): Outcome.TIMEOUT_HEAP_UPDATE,
    ("timeout", "direct"): Outcome.TIMEOUT_DIRECT,
    ("queue_full", "direct"): Outcome.QUEUE_FULL_DIRECT,
}
_ENDED: Final[dict[str, Outcome]] = {
    "ok": Outcome.OK,
    "timeout": Outcome.TIMEOUT_OTHER,
    "queue_full": Outcome.QUEUE_FULL_HEAP,
    "oversize": Outcome.OVERSIZE,
    "cancelled": Outcome.CANCELLED,
}


# Tasks that read a window leave the other groups of a file alone.
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
# A fleet has a handful; so many are a mistake.
MOST_LIMITS: Final = 1000


@dataclass(frozen=True, slots=True)
class ProxyTrace:
    """What there is of one proxy: how many requests, when, and how long one of them can last beyond its waits."""

    proxy_id: str
    rows: int
    first_us: int
    last_us: int
    longest_work_us: int
    largest_heap_bytes: int
    largest_direct_bytes: int
    imputed: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is ready to be replayed: where it is, the proxies in it, and the limits that were in force."""

    path: str
    proxies: tuple[ProxyTrace, ...]
    limits: dict[int, Limits]

    @property
    def rows(self) -> int:
        """Count the requests."""
        return sum(proxy.rows for proxy in self.proxies)

    @property
    def imputed_share(self) -> float:
        """Give the share of requests whose sizes or times are those of others."""
        return sum(proxy.imputed for proxy in self.proxies) / self.rows

    @property
    def usual_limits(self) -> Limits:
        """Give the limits that most requests met."""
        return next(iter(self.limits.values()))

    @property
    def largest(self) -> tuple[int, int]:
        """Give the heap and the direct memory of the largest lists, in bytes."""
        heap = max(proxy.largest_heap_bytes for proxy in self.proxies)
        return heap, max(proxy.largest_direct_bytes for proxy in self.proxies)


def prepare(spark: SparkSession, events: DataFrame, path: str) -> Prepared:
    """Write `replay_input` to `path` and describe it; raises PipelineError if there is nothing to replay.

    Always Parquet, whatever the format of the other tables is: its readers are no Spark.
    """
    limits = _some_limits(events)
    rows = replay_input(events).repartition("proxy_id").sortWithinPartitions("proxy_id", "arrival_us", "seq")
    writer = rows.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES)
    # Every proxy is written anew: those of an earlier run must not stay.
    writer.option("partitionOverwriteMode", "static").partitionBy("proxy_id").parquet(path)
    return Prepared(path, _describe(spark, path), limits)


def prepared_before(spark: SparkSession, events: DataFrame, path: str) -> Prepared:
    """Describe what `prepare` wrote; raises PipelineError if there is nothing to replay."""
    return Prepared(path, _describe(spark, path), _some_limits(events))


def _some_limits(events: DataFrame) -> dict[int, Limits]:
    limits = recorded_limits(events)
    if not limits:
        raise PipelineError("got no event of kind get_topics, expected some: nothing to replay")
    return limits


def replay_input(events: DataFrame) -> DataFrame:
    """Make the table `replay_input`, unsorted."""
    requests = events.where(F.col("kind") == "get_topics").select(
        "proxy_id",
        F.col("ts_us").alias("arrival_us"),
        "seq",
        # One without a name for it shares with nobody.
        F.coalesce("question_hash", _own_name()).alias("question"),
        F.xxhash64(F.coalesce("client_id", _own_name())).alias("client"),
        F.xxhash64(F.coalesce("principal", F.lit(""))).alias("principal"),
        F.xxhash64("tenant").alias("tenant"),
        F.xxhash64("namespace").alias("namespace"),
        F.col("namespace").alias("namespace_name"),
        F.coalesce("mode", F.lit("")).alias("mode"),
        *(_measured(theirs).alias(ours) for ours, theirs in _MEASURED.items()),
        F.coalesce("cancelled_after_us", F.lit(NEVER)).alias("cancel_us"),
        _limits_id().alias("limits_id"),
        _outcome().alias("recorded_outcome"),
        F.greatest(F.lit(0), F.col("total_us") - _work("upstream_us", "read_us", "write_us")).alias("recorded_wait_us"),
    )
    known = with_imputed(requests)
    # A question is one to one broker.
    # Two medians are of two requests.
    known = known.withColumn("direct_us", F.least("direct_us", "write_us"))
    known = known.withColumns({"broker": F.xxhash64("broker_name"), "question": F.xxhash64("question", "broker_name")})
    return known.select([column.name for column in REPLAY_INPUT.columns])


def with_imputed(requests: DataFrame) -> DataFrame:
    """Fill the measured columns where a request has none, and add `imputed`; looks at all rows once to find where."""
    lacking = F.lit(False)
    for name in _MEASURED:
        lacking = lacking | F.col(name).isNull()
    # A list over HTTP, which names no broker, shows nothing of heap memory.
    answered = (F.col("recorded_outcome") == int(Outcome.OK)) & (F.col("broker_name") != "")
    shown = F.when(answered & ~lacking, F.struct(*_MEASURED))
    requests = requests.withColumns({"imputed": lacking, "shown": shown})
    found = requests.groupBy("proxy_id").agg(F.bool_or("imputed").alias("needs"), _typical().alias("typical"))
    proxies = found.collect()
    needy = [row.proxy_id for row in proxies if row.needs]
    # Imputing sorts whole proxies: only those with something to impute pay for it.
    complete = requests.where(~F.col("proxy_id").isin(needy)).drop("shown")
    if not needy:
        return complete
    typical = requests.sparkSession.createDataFrame([row for row in proxies if row.needs], found.schema).drop("needs")
    filled = _filled(requests.where(F.col("proxy_id").isin(needy)), typical).select(complete.columns)
    return filled if len(needy) == len(proxies) else filled.unionByName(complete)


def _filled(requests: DataFrame, typical: DataFrame) -> DataFrame:
    likes = []
    for number, level in enumerate(_LEVELS):
        line = Window.partitionBy("proxy_id", *level).orderBy("arrival_us", "seq")
        before = line.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        # The whole line, whose first Spark computes once: a frame that begins at each row would cost the square.
        ever = line.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        last_shown = F.last("shown", ignorenulls=True).over(before)
        like = F.coalesce(last_shown, F.first("shown", ignorenulls=True).over(ever))
        likes.append(f"like_{number}")
        requests = requests.withColumn(likes[-1], like)
    requests = requests.join(F.broadcast(typical), "proxy_id")
    requests = requests.withColumn("like", F.coalesce(*likes, "typical"))
    nobody = {name: F.lit("") if name == "broker_name" else F.lit(0) for name in _MEASURED}
    return requests.withColumns(
        {name: F.coalesce(F.col(name), F.col(f"like.{name}"), nobody[name]) for name in _MEASURED}
    )


def _typical() -> Column:
    """Make the row in the middle of those that showed all: the median of each number, the most frequent broker."""
    return F.struct(
        *(
            (
                F.mode(f"shown.{name}") if name == "broker_name" else F.percentile_approx(f"shown.{name}", 0.5, 1000)
            ).alias(name)
            for name in _MEASURED
        )
    )


def _measured(name: str) -> Column:
    value = _direct_us() if name == "direct_us" else F.col(name)
    if name in _COMPLETE_AFTER:
        complete = (F.col("outcome") == "ok") | F.col("outcome_stage").isin(*_COMPLETE_AFTER[name])
        value = F.when(complete, value)
    if name in _NOT_OVER_HTTP:
        # Others have a question, unless they ended before they were looked at.
        over_http = F.col("question_hash").isNull() & (F.coalesce("outcome_stage", F.lit("")) != "client")
        value = F.when(over_http, F.lit("") if name == "broker" else F.lit(0)).otherwise(value)
    return value


def _direct_us() -> Column:
    """Give how long all of the booked memory would have been held to make the byte-seconds of a list for one client."""
    limit = F.col("direct_limit_bytes")
    booked = F.when(limit > 0, F.least("direct_bytes", limit)).otherwise(F.col("direct_bytes"))
    held = F.ceil(F.col("direct_byte_us") / F.when(booked > 0, booked)).cast("long")
    left_alone = F.col("carries_cost") & (F.col("group_size") == 1) & held.isNotNull() & F.col("write_us").isNotNull()
    return F.when(left_alone, F.least(held, "write_us")).otherwise(F.col("write_us"))


def recorded_limits(events: DataFrame) -> dict[int, Limits]:
    """Collect the limits that were ever in force, by `limits_id`, the most frequent first."""
    columns = [F.col(theirs).alias(ours) for ours, theirs in _LIMITS.items()]
    requests = events.where(F.col("kind") == "get_topics").select(_limits_id().alias("limits_id"), *columns)
    found = requests.groupBy("limits_id", *_LIMITS).count().orderBy(F.desc("count"), "limits_id")
    rows = found.limit(MOST_LIMITS + 1).collect()
    if len(rows) > MOST_LIMITS:
        raise PipelineError(f"got more than {MOST_LIMITS} sets of limits in the events, expected a few")
    return {row.limits_id: _limits(row.asDict()) for row in rows}


def _limits(row: dict[str, object]) -> Limits:
    named = {name: row[name] for name in _LIMITS}
    for name in ("heap_timeout_us", "direct_timeout_us", "request_timeout_us"):
        named[name] = int(str(named[name])) * 1000
    return Limits(**named)  # type: ignore[arg-type]


def _describe(spark: SparkSession, path: str) -> tuple[ProxyTrace, ...]:
    work = _work("upstream_us", "hold_us", "write_us")
    found = (
        spark.read.parquet(path)
        .groupBy(F.col("proxy_id").cast("string").alias("proxy_id"))
        .agg(
            F.count("*").alias("rows"),
            F.min("arrival_us").alias("first_us"),
            F.max("arrival_us").alias("last_us"),
            F.max(work).alias("longest_work_us"),
            F.max("heap_bytes").alias("largest_heap_bytes"),
            F.max("direct_bytes").alias("largest_direct_bytes"),
            F.count_if("imputed").alias("imputed"),
        )
        .orderBy("proxy_id")
        .collect()
    )
    return tuple(ProxyTrace(**row.asDict()) for row in found)


def _own_name() -> Column:
    return F.concat_ws("/", F.col("boot_id"), F.col("seq").cast("string"))


def _limits_id() -> Column:
    return F.xxhash64(*_LIMITS.values())


def _work(*parts: str) -> Column:
    total = F.lit(0).cast("long")
    for part in parts:
        total = total + F.coalesce(part, F.lit(0))
    return total


def _outcome() -> Column:
    outcome, stage = F.col("outcome"), F.coalesce("outcome_stage", F.lit(""))
    chosen = F.lit(int(Outcome.FAILED))
    for name, ended in _ENDED.items():
        chosen = F.when(outcome == name, int(ended)).otherwise(chosen)
    for (name, where), ended in _STAGED.items():
        chosen = F.when((outcome == name) & (stage == where), int(ended)).otherwise(chosen)
    return chosen.cast("short")
