"""Tables of the theme `whatif`: what is replayed, what came of it, how far to trust it, and what to set."""

from typing import Final

from pipeline.core.tables.table import Column, Table

LIMIT_COLUMNS: Final[tuple[Column, ...]] = (
    Column("heap_limit_bytes", "int64", "bytes", "Heap memory of one proxy; 0 is no limit."),
    Column("direct_limit_bytes", "int64", "bytes", "Direct memory of one proxy; 0 is no limit."),
    Column("heap_timeout_us", "int64", "us", "Longest wait for heap memory."),
    Column("direct_timeout_us", "int64", "us", "Longest wait for direct memory."),
    Column("heap_queue", "int64", "requests", "Longest queue for heap memory; 0 is no bound."),
    Column("direct_queue", "int64", "requests", "Longest queue for direct memory; 0 is no bound."),
    Column("request_timeout_us", "int64", "us", "Clock over all waits of a request."),
    Column("max_outstanding_per_broker", "int64", "requests", "Questions to one broker at a time."),
    Column("coalescing", "bool", "", "Equal requests share answers."),
    Column("fairness", "string", "", "Between whom memory is shared."),
    Column("key_cap_percent", "int64", "%", "Most of each limit that one key may be let in with."),
)

# In the order of pipeline.core.model.Outcome.
OUTCOME_COLUMNS: Final[tuple[Column, ...]] = (
    Column("ok", "int64", "requests", "Answered."),
    Column("timeout_heap", "int64", "requests", "Refused: waited too long for heap memory for the estimate."),
    Column("timeout_heap_update", "int64", "requests", "Refused: waited too long for heap memory to grow."),
    Column("timeout_direct", "int64", "requests", "Refused: waited too long for direct memory."),
    Column("timeout_other", "int64", "requests", "Refused: its clock ended while it waited for something else."),
    Column("queue_full_heap", "int64", "requests", "Refused: the queue for heap memory was full."),
    Column("queue_full_direct", "int64", "requests", "Refused: the queue for direct memory was full."),
    Column("oversize", "int64", "requests", "Refused: the list is larger than the proxy takes."),
    Column("cancelled", "int64", "requests", "Its client left first."),
    Column("failed", "int64", "requests", "Ended otherwise."),
)

REPLAY_INPUT: Final = Table(
    "replay_input",
    "One request as the replay needs it, sorted by arrival within its proxy; names are 64-bit hashes.",
    ("proxy_id", "arrival_us", "seq"),
    (
        Column("proxy_id", "string", "", "The proxy; one over all its starts."),
        Column("arrival_us", "int64", "us", "When it came: microseconds since 1970, UTC."),
        Column("seq", "int64", "", "Breaks ties between requests of one microsecond."),
        Column("question", "int64", "", "Equal for requests that may share an answer."),
        Column("client", "int64", "", "The connection."),
        Column("broker", "int64", "", "The broker that was asked."),
        Column("principal", "int64", "", "Key of the fairness of that name."),
        Column("tenant", "int64", "", "Key of the fairness of that name."),
        Column("namespace", "int64", "", "Key of the fairness of that name."),
        Column("estimate_bytes", "int64", "bytes", "Heap memory asked for before the size was known."),
        Column("heap_bytes", "int64", "bytes", "Heap memory that the answer needs."),
        Column("direct_bytes", "int64", "bytes", "Direct memory that the answer needs."),
        Column("upstream_us", "int64", "us", "From the question being written to the answer beginning."),
        Column("hold_us", "int64", "us", "From there to the whole answer being read, waits for memory left out."),
        Column("write_us", "int64", "us", "From having direct memory to the last byte leaving."),
        Column("direct_us", "int64", "us", "So long, held whole, it makes the byte-seconds of one nobody shared."),
        Column("cancel_us", "int64", "us", "From arrival to the client's leaving; -1 if it stayed."),
        Column("limits_id", "int64", "", "Names the limits that were in force."),
        Column("recorded_outcome", "int16", "", "How it ended: number of the outcome in the replay."),
        Column("recorded_wait_us", "int64", "us", "All its waits together: its life without the broker and writing."),
        Column("recorded_memory_wait_us", "int64", "us", "Of these, the waits for memory."),
        Column("imputed", "bool", "", "Sizes or times were never known, and are those of a request like it."),
    ),
    ("proxy_id",),
)

REPLAYED: Final = Table(
    "replayed",
    "The limits that were in force in what was replayed last, and the memory that was seen in use meanwhile.",
    ("limits_id",),
    (
        Column("limits_id", "int64", "", "Names the limits in `replay_input`."),
        Column("cluster", "string", "", "The cluster of all events, if they name one.", True),
        *LIMIT_COLUMNS,
        Column("requests", "int64", "requests", "Requests that met these limits."),
        Column("peak_heap_bytes", "int64", "bytes", "Most heap memory that lists held at one proxy at one time."),
        Column("peak_direct_bytes", "int64", "bytes", "The same of direct memory, without frames for watchers."),
        Column(
            "peak_watch_bytes", "int64", "bytes", "Most direct memory that watch frames held at one proxy at a time."
        ),
        Column("largest_watch_bytes", "int64", "bytes", "The largest permit of a watch frame."),
        Column("waited", "int64", "requests", "Requests that waited 10 ms for memory, or that were refused it."),
        Column("unproven_readers_percent", "int32", "%", "Least part of direct memory for clients not seen to read."),
        Column("spill_limit_bytes", "int64", "bytes", "Least room on disk for lists of slow readers; 0 is no disk."),
    ),
)

_QUANTILES: Final = (
    Column("wait_p50_us", "double", "us", "Median of all waits of answered requests together, from log buckets."),
    Column("wait_p95_us", "double", "us", "95 % of answered requests waited at most about so long."),
    Column("wait_p99_us", "double", "us", "99 % of answered requests waited at most about so long."),
    Column("wait_max_us", "double", "us", "Longest wait of an answered request: the upper edge of its bucket."),
)

WHATIF: Final = Table(
    "whatif",
    "What became of the recorded requests under one set of limits, one load and one size of the fleet.",
    ("scenario", "load", "fleet"),
    (
        Column("scenario", "int32", "", "Number of the set of limits."),
        *LIMIT_COLUMNS,
        Column("load", "int32", "", "So many times the recorded clients, each with the requests of a recorded one."),
        Column("fleet", "int32", "", "Each recorded proxy is replaced by so many, its clients spread over them."),
        Column("proxies", "int32", "proxies", "Proxies in all."),
        Column("requests", "int64", "requests", "Requests that were replayed."),
        *OUTCOME_COLUMNS,
        *_QUANTILES,
        Column("peak_heap_bytes", "int64", "bytes", "Most heap memory in use in any one proxy."),
        Column("peak_direct_bytes", "int64", "bytes", "Most direct memory in use in any one proxy."),
        Column("questions", "int64", "requests", "Questions to brokers."),
        Column("growths_waited", "int64", "requests", "Requests whose answer waited to grow: of many, no advice."),
        Column("imputed_share", "double", "", "Share of requests whose sizes or times are those of others."),
        Column("short_warm_ups", "int32", "windows", "Windows that began with less history than a request can live."),
        Column("wait_buckets", "map<int32,int64>", "requests", "Waits of answered requests by log bucket."),
    ),
)

CALIBRATION: Final = Table(
    "calibration",
    "The replay under the recorded limits against what was recorded, for each proxy and for all together. The error of"
    " waits is not in it: it goes by the wait that is promised.",
    ("proxy_id",),
    (
        Column("proxy_id", "string", "", "The proxy; the empty text stands for all of them."),
        Column("requests", "int64", "requests", "Requests compared: all but those that their broker failed."),
        Column("recorded_ok", "int64", "requests", "Answered, as recorded."),
        Column("simulated_ok", "int64", "requests", "Answered, in the replay."),
        Column("recorded_refused", "int64", "requests", "Timed out, queue full or too large, as recorded."),
        Column("simulated_refused", "int64", "requests", "Timed out, queue full or too large, in the replay."),
        Column("recorded_cancelled", "int64", "requests", "The client left first, as recorded."),
        Column("simulated_cancelled", "int64", "requests", "The client left first, in the replay."),
        Column("recorded_p50_us", "double", "us", "Median wait of answered requests, as recorded."),
        Column("simulated_p50_us", "double", "us", "Median wait of answered requests, in the replay."),
        Column("recorded_p95_us", "double", "us", "95th percentile of the same, as recorded."),
        Column("simulated_p95_us", "double", "us", "95th percentile of the same, in the replay."),
        Column("recorded_p99_us", "double", "us", "99th percentile of the same, as recorded."),
        Column("simulated_p99_us", "double", "us", "99th percentile of the same, in the replay."),
        Column("recorded_max_us", "double", "us", "Longest of them, as recorded."),
        Column("simulated_max_us", "double", "us", "Longest of them, in the replay."),
        Column("limiter_p99_us", "double", "us", "99th percentile of recorded waits without the machine's lateness."),
        Column(
            "late_p50_us", "double", "us", "Median lateness of the machine: waits that no rule of the limiter makes."
        ),
        Column("late_p99_us", "double", "us", "99th percentile of the same."),
        Column("outcome_error", "double", "", "Largest difference between shares of outcomes."),
        Column("imputed_share", "double", "", "Share of requests whose sizes or times are those of others."),
    ),
)

ADVICE: Final = Table(
    "advice",
    "The trade-off: every point that was tried at the load of the target, whether it holds it, and what it costs.",
    ("fleet", "heap_limit_bytes", "direct_limit_bytes", "fairness", "coalescing", "step", "scenario"),
    (
        Column("step", "string", "", "grid, refined or final: the final one carries the headroom."),
        Column("scenario", "int32", "", "Number of the set of limits within its step."),
        *LIMIT_COLUMNS,
        Column("load", "int32", "", "Load of the target."),
        Column("promised_wait_us", "double", "us", "The target: 99 % of answered requests wait at most so long."),
        Column("fleet", "int32", "", "Proxies for each recorded one."),
        Column("requests", "int64", "requests", "Requests that were replayed."),
        Column("refused", "int64", "requests", "Timed out, queue full or too large."),
        Column("wait_p99_us", "double", "us", "99 % of answered requests waited at most about so long."),
        Column("growths_waited", "int64", "requests", "Requests whose answer waited to grow in the replay."),
        Column("memory_bytes", "int64", "bytes", "Heap and direct memory of all proxies together; 0 is no limit."),
        Column("watch_direct_bytes", "int64", "bytes", "Of the advised direct memory, the room for watch frames."),
        Column("extrapolated", "string", "", "Columns whose values are beyond half to twice the recorded; and `load`."),
        Column("holds", "bool", "", "It holds the target."),
        Column("best", "bool", "", "No other point that holds the target needs less memory with as many proxies."),
        Column("chosen", "bool", "", "This is the advice."),
    ),
)
