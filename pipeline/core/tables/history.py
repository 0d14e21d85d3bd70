"""Tables of the theme `history`: what earlier runs said, and which limits were in force each day. Rows are kept."""

from typing import Final

from pipeline.core.tables.table import Column, Table
from pipeline.core.tables.whatif import LIMIT_COLUMNS

_RUN: Final = (
    Column("made_at", "timestamp", "UTC", "When the job ended."),
    Column("cluster", "string", "", "The cluster, if all events are of one that is named.", True),
    Column("first_us", "int64", "us", "First arrival of what was replayed, microseconds since 1970, UTC."),
    Column("last_us", "int64", "us", "Last arrival of the same."),
    Column("promised_wait_us", "double", "us", "The wait that is promised to 99 % of the answered requests."),
)
CALIBRATION_HISTORY: Final = Table(
    "calibration_history",
    "How far each run of `whatif` was off, for all proxies together.",
    ("made_at",),
    (
        *_RUN,
        Column("requests", "int64", "requests", "Requests compared."),
        Column("error", "double", "", "The larger of the errors of outcomes and waits; null if it is no number.", True),
        Column("outcome_error", "double", "", "Largest difference between shares of outcomes."),
        Column("recorded_refused", "int64", "requests", "Refused, as recorded."),
        Column("simulated_refused", "int64", "requests", "Refused, in the replay."),
        Column("recorded_p99_us", "double", "us", "99th percentile of all waits, as recorded."),
        Column("simulated_p99_us", "double", "us", "The same in the replay."),
        Column("late_p99_us", "double", "us", "99th percentile of the machine's lateness."),
        Column("imputed_share", "double", "", "Share of requests whose sizes or times are those of others."),
    ),
)
ADVICE_HISTORY: Final = Table(
    "advice_history",
    "What each run of `advise` said to set.",
    ("made_at",),
    (
        *_RUN,
        Column("load", "int32", "", "Load of the target."),
        Column("fleet", "int32", "", "Proxies for each recorded one."),
        Column("proxies", "int32", "proxies", "Proxies in all."),
        Column("max_refused", "double", "", "Share of requests that may be refused."),
        Column("watch_direct_bytes", "int64", "bytes", "Of the direct memory, the room for watch frames."),
        Column("extrapolated", "string", "", "Columns whose values are beyond half to twice the recorded; and `load`."),
        *LIMIT_COLUMNS,
    ),
)
LIMITS_BY_DAY: Final = Table(
    "limits_by_day",
    "The limits that were in force at a proxy on a day, and what became of the requests that met them.",
    ("date", "cluster", "proxy_id", "heap_limit_bytes", "direct_limit_bytes"),
    (
        Column("date", "date", "", "Day of the arrivals, UTC."),
        Column("cluster", "string", "", "The cluster that the proxy serves.", True),
        Column("proxy_id", "string", "", "The proxy."),
        Column("heap_limit_bytes", "int64", "bytes", "Heap memory of the proxy; 0 is no limit."),
        Column("direct_limit_bytes", "int64", "bytes", "Direct memory of the proxy; 0 is no limit."),
        Column("requests", "int64", "requests", "Topic lists that were asked for."),
        Column("answered", "int64", "requests", "Those that ended well."),
        Column("refused", "int64", "requests", "Timed out, queue full or too large."),
        Column(
            "wait_p99_us", "double", "us", "99th percentile of all waits of the answered requests, from log buckets."
        ),
    ),
)
