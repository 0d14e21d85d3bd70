"""Owns the scenarios as data: load, rows, what is asked of them, what the report shows. Runs nothing."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.ladder.hostile_scenarios import hostile
from benchmarks.ladder.memory_scenarios import relay_memory
from benchmarks.ladder.processor_scenarios import processor_time
from benchmarks.ladder.rows import CONNECTION_BYTES, Bound, Budget, Column, Ratio, Scenario
from benchmarks.ladder.slow_scenarios import slow_readers
from benchmarks.ladder.tls_scenarios import under_tls

LIST_BYTES = 10_000 * 102  # 10,000 names of 100 bytes, tag and length before each
PING_P99_MILLIS = 20.0

# By so much the run without a proxy must be ahead of the best peer, or throughput does not count.
LISTS_LEAD = Ratio("01", ("06",), 4.0, validity=True)
RELAY_LEAD = Ratio("01", ("06", "07"), 1.5, validity=True)
BULK_LEAD = replace(RELAY_LEAD, required=1.25)
WITHOUT_COMPILER = "without a compiler"

# Good to know: nobody runs the stand-in.
STAND_IN = (
    Ratio("04", ("06p",), None),
    Ratio("04", ("06p",), None, quantity="cpu_us", at_most=True),
    Ratio("04", ("06p",), None, quantity="peak_rss_bytes", at_most=True),
)
LIST_RATIOS = (
    LISTS_LEAD,
    Ratio("04", ("06",), 2.0),
    Ratio("04", ("06",), 1.5, note=WITHOUT_COMPILER),
    Ratio("04", ("06",), 0.2, quantity="cpu_us", at_most=True),
    Ratio("04", ("06",), 0.28, quantity="cpu_us", at_most=True, note=WITHOUT_COMPILER),
    Ratio("04", ("00c",), 1.8, quantity="cpu_us", at_most=True),
    Ratio("04", ("02",), None, quantity="cpu_us", at_most=True),
    Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
    *STAND_IN,
    Ratio("04", ("04b",), 0.97),
    Ratio("05", ("04",), None),
    Ratio("03", ("02",), None),
)
BULK_ROWS = ("00s", "01", "02", "02a", "06", "07", "07s")
ECHO = ("--connections", "50", "--frame-bytes", "1024")
ECHO_64K = ("--connections", "4", "--frame-bytes", "65536", "--window", "16")

RSS = (Column("idle_rss_bytes", "idle RSS", mib=True), Column("peak_rss_bytes", "peak RSS", mib=True))
AT_REST = (*RSS, Column("bytes_per_connection", "bytes per connection"))
ANSWERS = (Column("answered", "answered"), Column("refused", "refused"), Column("lost", "lost"))
PINGS = (
    Column("ping_p50_ms", "PING p50, ms", 1), Column("ping_p99_ms", "p99", 1), Column("ping_max_ms", "max", 1),
    Column("broker_p99_ms", "to the broker, p99", 1), Column("machine_p99_ms", "to an idle one, p99", 1),
)  # fmt: skip

# For lists of 20 MB: frames of that size on both sides, and memory for several of them.
LARGE_BYTES = 33_554_432
LARGE = (
    ("maxMessageSize", str(LARGE_BYTES)),
    ("maxTopicListInFlightHeapMemSizeMB", "256"),
    ("maxTopicListInFlightDirectMemSizeMB", "256"),
)
LARGE_BROKER = ("--max-message-bytes", str(LARGE_BYTES))
# Memory so small that nearly all requests wait for it, and queues that hold all of them.
QUEUES = (
    ("maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize", "20000"),
    ("maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize", "20000"),
)
NARROW = (
    *QUEUES, ("maxTopicListInFlightHeapMemSizeMB", "16"), ("maxTopicListInFlightDirectMemSizeMB", "16"),
)  # fmt: skip
# Half the heap limit is for estimates of requests under way to one broker: 10,000 of 7 KiB need this much to stand in
# the heap's own queue.
CROWDED = (
    *QUEUES, ("maxTopicListInFlightHeapMemSizeMB", "200"), ("maxTopicListInFlightDirectMemSizeMB", "16"),
    ("topicListWriteStallTimeoutMillis", "120000"),
)  # fmt: skip


def _storm(connections: int, times_java: float) -> Scenario:
    return Scenario(
        f"topic lists, one namespace, {connections} connections",
        "paired", ("01", "04", "06", "06p"), "lists", ("--connections", str(connections), "--one-namespace"),
        optional=("06p",),
        ratios=(
            LISTS_LEAD, *STAND_IN,
            Ratio("04", ("06",), times_java),
            Ratio("04", ("01",), 0.5),
            Ratio("04", ("06",), None, quantity="cpu_us", at_most=True),
            Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
        ),
    )  # fmt: skip


def _equal(connections: int, depth: int, *rows: str, questions: float | None) -> Scenario:
    shape = f"{connections:,} connections" + (f" with {depth} each" if depth > 1 else "")
    return Scenario(
        f"5,000 equal requests for a list of 1 MB at once, {shape}",
        "memory", rows, "late-readers",
        ("--connections", str(connections), "--depth", str(depth), "--one-namespace", "--late", "0",
         "--receive-buffer", "0", "--threads", "2", "--broker", "{broker}"),
        timed=False, repeats=3, budget=Budget(connections, LIST_BYTES),
        optional=tuple(row for row in rows if row == "06p"),
        columns=(*RSS, *ANSWERS, Column("questions", "questions"), Column("seconds_to_end", "seconds", 1)),
        bounds=(
            Bound("answers", "answered", 5000, at_most=False),
            Bound("questions that the broker saw", "questions", questions),
        ),
    )  # fmt: skip


def _own_tokens(state: str, most: float | None, rehearsals: int) -> Scenario:
    # Rehearsals have tokens of their own, too: no connection to the broker is there already.
    connections = 2000
    return Scenario(
        f"{connections:,} clients of one role, a token each, which brokers get, ask for one list at once, {state}",
        "memory", ("01", "04", "06", "06p"), "late-readers",
        ("--connections", str(connections), "--depth", "1", "--one-namespace", "--late", "0",
         "--receive-buffer", "0", "--threads", "1", "--rehearsals", str(rehearsals), "--broker", "{broker}"),
        timed=False, repeats=7, quantity="seconds_to_end", topics=100, tokens=connections * (rehearsals + 1),
        optional=("06p",),
        columns=(
            *ANSWERS, Column("seconds_to_end", "seconds", 2), Column("p99_ms", "p99, ms"),
            Column("connects", "CONNECTs"), Column("questions", "questions"), RSS[1],
        ),
        ratios=(Ratio("04", ("06",), most, quantity="seconds_to_end", at_most=True),),
        bounds=(
            Bound("answers", "answered", connections, at_most=False),
            Bound("CONNECTs that the broker saw", "connects", connections),
        ),
    )  # fmt: skip


def _pings(title: str, options: tuple[str, ...], requests: int, budget: Budget, *, large: bool = False) -> Scenario:
    return Scenario(
        f"a small client's PING while {title}",
        "memory", ("04",), "late-readers",
        (*options, "--pings", "--broker", "{broker}", "--control", "{second}"),
        timed=False, repeats=3, budget=budget, second=(), columns=(*PINGS, *ANSWERS, RSS[1]),
        topics=200_000 if large else 10_000,
        settings=LARGE if large else (), broker=LARGE_BROKER if large else (),
        bounds=(
            Bound("PING to PONG, p99, ms", "ping_p99_ms", PING_P99_MILLIS),
            Bound("PING to PONG, max, ms", "ping_max_ms", None),
            Bound("answers", "answered", requests, at_most=False),
        ),
    )  # fmt: skip


def _distinct(connections: int, depth: int) -> tuple[str, ...]:
    return ("--connections", str(connections), "--depth", str(depth), "--late", "2")


def _at_once(connections: int) -> tuple[str, ...]:
    return ("--connections", str(connections), "--depth", "1", "--one-namespace", "--late", "0",
            "--receive-buffer", "0", "--threads", "2")  # fmt: skip


def _price(title: str, options: tuple[str, ...], quantity: str, most: float) -> Scenario:
    return Scenario(
        f"price of looking at relayed frames for topic-list watchers, {title}",
        "paired", ("02", "02r"), "relay", options, "echo", quantity=quantity, relayed=True, repeats=2,
        ratios=(Ratio("02", ("02r",), most, quantity="cpu_us", at_most=True), Ratio("02", ("02r",), None)),
    )  # fmt: skip


def _event_price(title: str, options: tuple[str, ...], rows: tuple[str, ...], least: float | None,
                 topics: int = 10_000) -> Scenario:  # fmt: skip
    return Scenario(
        f"price of the event log, {title}",
        "paired", ("04", *rows), "lists", options, repeats=3, topics=topics,
        ratios=(
            *(Ratio(row, ("04",), least) for row in rows),
            *(Ratio(row, ("04",), None, quantity="cpu_us", at_most=True) for row in rows),
        ),
    )  # fmt: skip


SCENARIOS: dict[str, Scenario] = {
    "lists": Scenario(
        "topic lists of 10,000 names of 100 B, 16 connections, a namespace each",
        "paired", ("00c", "01", "02", "03", "04", "04b", "05", "06", "06p", "07"), "lists", ("--connections", "16"),
        ratios=LIST_RATIOS, optional=("04b", "06p"),
    ),
    "lists-storm": _storm(16, 3.5),
    "lists-storm-200": _storm(200, 7.0),
    "lists-equal": _equal(5000, 1, "01", "04", "06", "06p", questions=50),
    "lists-equal-pipelined": _equal(1000, 5, "01", "04", questions=None),
    "own-token-storm": _own_tokens("of proxies that have just started", 1.2, rehearsals=0),
    "own-token-storm-warm": _own_tokens("of proxies that have had four such storms", None, rehearsals=4),
    "relay-echo": Scenario(
        "relay, echo of 1 KiB, 50 connections",
        "paired", ("00c", "01", "02", "02a", "02b", "06", "07", "07s"), "relay", ECHO, "echo", relayed=True,
        optional=("02a", "02b"),
        ratios=(
            RELAY_LEAD,
            Ratio("02", ("06",), 1.15), Ratio("02", ("07", "07s"), 1.0), Ratio("02", ("02b",), 0.97),
            Ratio("02", ("07", "07s"), 1.0, quantity="cpu_us", at_most=True),
            Ratio("02", ("00c",), None, quantity="cpu_us", at_most=True),
            Ratio("02", ("02a",), None, quantity="cpu_us", at_most=True), Ratio("02", ("02a",), None),
        ),
    ),
    "relay-64k": Scenario(
        "relay, echo of 64 KiB, 4 connections, 16 outstanding each",
        "paired", BULK_ROWS, "relay", ECHO_64K, "echo", quantity="mb_per_second", relayed=True,
        ratios=(
            RELAY_LEAD,
            Ratio("02", ("06", "07", "07s"), 1.25),
            Ratio("02", ("07",), 0.4, quantity="cpu_us", at_most=True),
            Ratio("02", ("06",), 0.7, quantity="cpu_us", at_most=True),
            Ratio("02", ("00s",), None, quantity="cpu_us", at_most=True),
            Ratio("02", ("02a",), None, quantity="cpu_us", at_most=True), Ratio("02", ("02a",), None),
        ),
        optional=("02a",),
    ),
    "relay-128k": Scenario(
        "relay, 128 KiB frames into a sink, 4 connections, 8 outstanding each",
        "paired", BULK_ROWS, "relay",
        ("--connections", "4", "--frame-bytes", "131072", "--window", "8", "--receipts"), "sink",
        quantity="mb_per_second", relayed=True,
        ratios=(
            BULK_LEAD,
            Ratio("02", ("06",), 1.15),
            Ratio("02", ("06", "07", "07s"), 0.6, quantity="cpu_us", at_most=True),
            Ratio("02", ("00s",), None, quantity="cpu_us", at_most=True),
            Ratio("02", ("02a",), None, quantity="cpu_us", at_most=True), Ratio("02", ("02a",), None),
        ),
        optional=("02a",),
    ),
    "watch-price-echo": _price("echo of 1 KiB, 50 connections", ECHO, "per_second", 1.15),
    "watch-price-64k": _price("echo of 64 KiB, 4 connections, 16 outstanding each", ECHO_64K, "mb_per_second", 1.10),
    "event-price": _event_price("lists of 10,000 names", ("--connections", "16"), ("04e", "04p"), 0.97),
    "event-price-equal": _event_price(
        "lists of 10,000 names, one namespace", ("--connections", "16", "--one-namespace"), ("04e",), 0.97,
    ),
    "event-price-small": _event_price(
        "lists of 100 names, the worst case", ("--connections", "16"), ("04e",), None, topics=100,
    ),
    "late-readers": Scenario(
        "4,000 lists of 1 MB outstanding, 4 KiB receive buffers, reading begins 8 s late",
        "memory", ("01", "04", "04b", "06", "06p"), "late-readers", ("--connections", "1000", "--depth", "4"),
        timed=False, columns=(*RSS, *ANSWERS), budget=Budget(1000, LIST_BYTES), optional=("04b", "06p"),
        bounds=(Bound("answers", "answered", 4000, at_most=False),),
    ),
    "ping-storm": _pings(
        "4,000 lists of 1 MB, a namespace per connection, are read 2 s late", _distinct(1000, 4), 4000,
        Budget(1000, LIST_BYTES),
    ),
    "ping-storm-equal": _pings(
        "5,000 connections ask for one list of 1 MB", _at_once(5000), 5000, Budget(5000, LIST_BYTES),
    ),
    "ping-storm-20mb": _pings(
        "100 lists of 20 MB, a namespace per connection, are read 2 s late", _distinct(50, 2), 100,
        Budget(50, 20 * LIST_BYTES), large=True,
    ),
    "ping-storm-equal-20mb": _pings(
        "200 connections ask for one list of 20 MB", _at_once(200), 200, Budget(200, 20 * LIST_BYTES), large=True,
    ),
    "cancel-10000": Scenario(
        "10,000 requests wait for memory and their 5,000 clients leave at once",
        "memory", ("04",), "vanish",
        ("--connections", "5000", "--depth", "2", "--metrics", "{web}", "--broker", "{broker}"),
        timed=False, repeats=3, settings=CROWDED,
        columns=(
            Column("queued", "queued"), Column("closing_ms", "closing takes, ms"),
            Column("emptied_ms", "queue empty, ms"), Column("ping_p50_ms", "PING p50, ms", 1),
            Column("ping_p99_ms", "p99", 1), Column("ping_max_ms", "max", 1),
        ),
        bounds=(
            Bound("requests that waited", "queued", 10_000, at_most=False),
            Bound("still in the queue 15 s later", "left_over", 0),
            Bound("questions asked for clients that had left", "asked_for_nobody", 0),
            Bound("PING to PONG meanwhile, p99, ms", "ping_p99_ms", None),
            Bound("from the first close to an empty queue, ms", "emptied_ms", None),
        ),
    ),
    "fairness": Scenario(
        "single requests of one tenant beside 10,000 outstanding of another, lists of 250 KB, 16 MB + 16 MB",
        "memory", ("04", "04t"), "fairness", ("--connections", "5000", "--depth", "2", "--seconds", "20"),
        timed=False, repeats=3, quantity="p50_ms", topics=2500, settings=NARROW,
        columns=(
            Column("alone_p50_ms", "alone, p50, ms", 1), Column("p50_ms", "beside, p50, ms"),
            Column("p99_ms", "p99"), Column("max_ms", "max"), Column("answered", "answered"),
            Column("refused", "refused"), Column("greedy_per_second", "greedy, per second"),
            Column("greedy_refused", "greedy, refused"),
        ),
        ratios=(
            Ratio("04t", ("04",), 0.1, quantity="p50_ms", at_most=True),
            Ratio("04t", ("04",), None, quantity="p99_ms", at_most=True),
        ),
    ),
    "two-brokers": Scenario(
        "lookups and lists of one broker while 1,000 lookups hang on another that is silent",
        "memory", ("04",), "two-brokers",
        ("--connections", "20", "--depth", "50", "--seconds", "4", "--silent-broker", "{second}"),
        timed=False, repeats=7, topics=100, broker=("--redirect", "{second}"), second=("--silent",),
        columns=(
            Column("lookup_alone_p99_ms", "lookup p99 alone, ms", 2), Column("lookup_p99_ms", "beside, ms", 2),
            Column("list_alone_p99_ms", "list p99 alone, ms", 2), Column("list_p99_ms", "beside, ms", 2),
        ),
        bounds=(
            Bound("lookups that hang on the silent broker", "hanging", 1000, at_most=False),
            Bound("lookup p99, beside over alone, median", "lookup_p99_ratio", 1.25, typical=True),
            Bound("list p99, beside over alone, median", "list_p99_ratio", 1.25, typical=True),
        ),
    ),
    "idle": Scenario(
        "memory of a connection at rest: slope from 1,000 to 4,000 after CONNECTED",
        "memory", ("04", "04b", "06", "07"), "idle", timed=False, columns=AT_REST, optional=("04b",),
        bounds=(Bound("bytes per connection at rest", "bytes_per_connection", CONNECTION_BYTES),),
    ),
    "stalled-consumers": Scenario(
        "500 relayed consumers that never read, a broker that floods them",
        "memory", ("02", "06", "07"), "stalled-consumers", ("--connections", "500"), "flood", relayed=True,
        columns=AT_REST,
    ),
    **relay_memory(AT_REST, ECHO_64K),
    "start": Scenario(
        "seconds from exec to the first CONNECTED, warm", "start", ("04", "04b", "06", "07"), quantity="seconds",
        optional=("04b",), ratios=(Ratio("04", ("04b",), 1.03, quantity="seconds", at_most=True),),
        bounds=(Bound("seconds from exec to CONNECTED", "seconds", 0.6, typical=True),),
    ),
}  # fmt: skip

SCENARIOS |= processor_time(ECHO, ECHO_64K)
SCENARIOS |= under_tls(SCENARIOS)
SCENARIOS |= slow_readers()
SCENARIOS |= hostile()
