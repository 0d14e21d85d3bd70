"""Tables of the theme `usage`: who cost how much, how long they waited, what sharing answers saved.

Rule: every row is of one proxy of one cluster, so that clusters in one directory are never added up. Topic lists and
watch frames are counted apart, and only events that carry the cost of their group bring its memory: to the principal
and client version that ended last, whose namespace and principal are those of the whole group.
"""

from pipeline.core.tables.table import Column, Table

WHO = (
    Column("tenant", "string", "", "Tenant; empty for watch frames of a relay that does not know it.", True),
    Column("namespace", "string", "", "`tenant/namespace`; empty where tenant is.", True),
    Column("principal", "string", "", "Who asked, as the event log has it; null without authentication.", True),
    Column("client_version", "string", "", "What the client said of itself.", True),
)
_WINDOW = (
    Column("date", "date", "", "Day of the window, UTC."),
    Column("window_start", "timestamp", "UTC", "When the window of arrivals begins."),
    Column("window_seconds", "int32", "s", "How long it is."),
)
WHERE = (
    Column("cluster", "string", "", "The cluster that the proxy serves; null if it does not say.", True),
    Column("proxy_id", "string", "", "The proxy.", True),
)
BROKER = Column("broker", "string", "", "Broker that was asked, as host:port; null if none was.", True)
_KEY = ("window_start", "cluster", "proxy_id", "namespace", "principal", "client_version")


def _count(name: str, meaning: str) -> Column:
    return Column(name, "int64", "", meaning)


def _bytes(name: str, meaning: str) -> Column:
    return Column(name, "int64", "bytes", meaning)


def _byte_seconds(name: str, meaning: str) -> Column:
    return Column(name, "double", "bytes*s", meaning)


SAVINGS = (
    _count("questions", "Groups of requests, each of which asked its broker at most once."),
    _count("questions_saved", "Questions that were not asked, because members of a group share one: members less 1."),
    _bytes("upstream_bytes_saved", "Answers not fetched for them: members less 1, times the group's answer."),
    _byte_seconds(
        "heap_byte_seconds_saved",
        "Heap not held for them: members less 1, times what the group held. An estimate from above for groups whose "
        "members left at different times.",
    ),
)

USAGE = Table(
    "usage",
    "Requests, refusals, bytes, memory and largest sizes of one window, proxy, broker, namespace and client.",
    (*_KEY, "broker"),
    (
        *_WINDOW,
        *WHERE,
        BROKER,
        *WHO,
        _count("requests", "Topic lists that were asked for."),
        _count("answered", "Those that ended well."),
        _count("refused", "Those that the limiter refused: the next seven together."),
        _count("timeout_heap", "Refused after waiting for heap memory for the estimate."),
        _count("timeout_heap_update", "Refused after waiting for heap memory to grow to the answer."),
        _count("timeout_direct", "Refused after waiting for direct memory."),
        _count("timeout_other", "Refused because the clock over all waits ended while they waited for something else."),
        _count("queue_full_heap", "Refused at once, because too many waited for heap memory."),
        _count("queue_full_direct", "Refused at once, because too many waited for direct memory."),
        _count("oversize", "Refused, because the answer was larger than any may be."),
        _count("cancelled", "Those whose client left first."),
        _count("upstream_error", "Those to which the broker answered with an error, or not at all."),
        _count("failed", "Those that failed otherwise."),
        _count("coalesced", "Those that shared the question of another."),
        _count("topics", "Topics in answers."),
        _bytes("name_bytes", "Names of topics in answers."),
        _bytes("response_bytes", "Frames sent to clients."),
        _byte_seconds("heap_byte_seconds", "Heap memory times how long it was booked."),
        _byte_seconds("direct_byte_seconds", "Direct memory times how long it was booked, for topic lists."),
        Column("memory_wait_seconds", "double", "s", "Waits for heap, for its growth and for direct memory, summed."),
        Column("max_memory_wait_us", "int64", "us", "The longest of them."),
        Column("max_total_us", "int64", "us", "The longest time from arrival to end."),
        _count("max_topics", "Topics in the longest list."),
        _bytes("max_response_bytes", "The largest frame."),
        _bytes("max_heap_bytes", "Heap memory of the largest answer."),
        *SAVINGS,
        _count("watch_frames", "First lists and updates for topic watchers."),
        _count("watch_refused", "Those that the limiter refused."),
        _bytes("watch_bytes", "Their bytes."),
        _byte_seconds("watch_direct_byte_seconds", "Direct memory that they held, times how long."),
    ),
    ("date",),
)

WAITS = Table(
    "waits",
    "How many waited how long, by the hour (or `--window`, if longer): one row for each bucket with somebody in it.",
    (*_KEY, "wait", "bucket"),
    (
        *_WINDOW,
        *WHERE,
        *WHO,
        Column(
            "wait",
            "string",
            "",
            "`memory`: for heap, its growth and direct memory together; `total`: from arrival to end; `watch`: of "
            "watch frames, for direct memory.",
        ),
        Column("bucket", "int32", "", "floor(8 log2 us): 9 % wide; -1 is no wait at all."),
        _count("count", "Requests in it."),
    ),
    ("date",),
)

TOP_COSTS = Table(
    "top_costs",
    "Who cost most in each dimension by each measure, on each day and in each hour, in one cluster.",
    ("date", "cluster", "hour_start", "dimension", "measure", "rank"),
    (
        Column("date", "date", "", "The day, UTC."),
        WHERE[0],
        Column("hour_start", "timestamp", "UTC", "When the hour begins; null for the whole day.", True),
        Column("dimension", "string", "", "tenant, namespace, principal, client_version, proxy_id or broker."),
        Column("measure", "string", "", "Column of `usage` whose sum is compared."),
        Column("rank", "int32", "", "1 costs most; equal ones in the order of their names."),
        Column("name", "string", "", "Which one of the dimension; null if unknown.", True),
        Column("value", "double", "", "The sum, in the unit of its column."),
        Column("share", "double", "", "Part of the sum over all, between 0 and 1."),
    ),
    ("date",),
)

SHARING = Table(
    "sharing",
    "What sharing answers saved, for each hour, proxy and namespace: from the events that carry a group's cost.",
    ("hour_start", "cluster", "proxy_id", "namespace"),
    (
        Column("date", "date", "", "Day of the hour, UTC."),
        Column("hour_start", "timestamp", "UTC", "When the hour begins."),
        *WHERE,
        Column("tenant", "string", "", "Tenant.", True),
        Column("namespace", "string", "", "`tenant/namespace`.", True),
        _count("requests", "Topic lists that were asked for."),
        _count("coalesced", "Those that shared the question of another."),
        *SAVINGS,
    ),
    ("date",),
)
