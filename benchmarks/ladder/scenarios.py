"""Owns the scenarios as data: load, rows, what is asked of them, what is shown of a run. Runs nothing."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.ladder.hostile_scenarios import hostile
from benchmarks.ladder.rows import CONNECTION_BYTES, MIB, Bound, Budget, Ratio, Scenario, beside_before
from benchmarks.ladder.tls_scenarios import under_tls

LIST_BYTES = 10_000 * 102  # 10,000 names of 100 bytes, tag and length before each
PING_P99_MILLIS = 20.0
# The version before (LADDER_BEFORE), in pairs.
BEFORE = 0.97
# In the mixed storms.
QUICK, SLOW = 800, 200
# The p99 of quick clients beside clients that do not read, over that of the same storm without those.
MOST_TIMES = 1.3

# By so much the run without a proxy must be ahead of the best peer, or throughput does not count.
LISTS_LEAD = Ratio("01", ("06",), 4.0, validity=True)
RELAY_LEAD = Ratio("01", ("06", "07"), 1.5, validity=True)
BULK_LEAD = replace(RELAY_LEAD, required=1.25)

# Good to know: nobody runs the stand-in.
STAND_IN = (
    Ratio("04", ("06p",), None),
    Ratio("04", ("06p",), None, quantity="cpu_us", at_most=True),
    Ratio("04", ("06p",), None, quantity="peak_rss_bytes", at_most=True),
)
LIST_RATIOS = (
    LISTS_LEAD,
    Ratio("04", ("06",), 2.0),
    Ratio("04", ("06",), 0.2, quantity="cpu_us", at_most=True),
    Ratio("04", ("00c",), 1.8, quantity="cpu_us", at_most=True),
    Ratio("04", ("02",), None, quantity="cpu_us", at_most=True),
    Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
    *STAND_IN,
    Ratio("04", ("04b",), BEFORE),
    Ratio("05", ("04",), None),
    Ratio("03", ("02",), None),
)
RELAY_BESIDE = (Ratio("02", ("02b",), BEFORE),)
BULK_ROWS = ("00s", "01", "02", "02b", "06", "07", "07s")

RSS = ("idle_rss_bytes", "peak_rss_bytes")
AT_REST = (*RSS, "bytes_per_connection")
PINGS = ("ping_p50_ms", "ping_p99_ms", "ping_max_ms", "broker_p99_ms", "machine_p99_ms")


def _storm(connections: int, times_java: float) -> Scenario:
    return Scenario(
        f"topic lists, one namespace, {connections} connections",
        "paired", ("01", "04", "04b", "06", "06p"), "lists", ("--connections", str(connections), "--one-namespace"),
        optional=("04b", "06p"),
        ratios=(
            LISTS_LEAD, *STAND_IN,
            Ratio("04", ("06",), times_java),
            Ratio("04", ("01",), 0.5),
            Ratio("04", ("04b",), BEFORE),
            Ratio("04", ("06",), None, quantity="cpu_us", at_most=True),
            Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
        ),
    )  # fmt: skip


def _own_tokens(state: str, most: float | None, rehearsals: int) -> Scenario:
    # Rehearsals have tokens of their own, too: no connection to the broker is there already.
    connections = 2000
    return Scenario(
        f"{connections:,} clients of one role, a token each, which brokers get, ask for one list at once, {state}",
        "memory", ("01", "04", "04b", "06", "06p"), "late-readers",
        ("--connections", str(connections), "--depth", "1", "--one-namespace", "--late", "0",
         "--receive-buffer", "0", "--threads", "1", "--rehearsals", str(rehearsals), "--broker", "{broker}"),
        timed=False, repeats=7, quantity="seconds_to_end", topics=100, tokens=connections * (rehearsals + 1),
        optional=("04b", "06p"),
        shown=("seconds_to_end", "p99_ms", "connects", "questions"),
        ratios=(
            Ratio("04", ("06",), most, quantity="seconds_to_end", at_most=True),
            *beside_before("seconds_to_end", "04"),
        ),
        bounds=(
            Bound("answers", "answered", connections, at_most=False),
            Bound("CONNECTs that the broker saw", "connects", connections),
        ),
    )  # fmt: skip


def _mixed(who: str, options: tuple[str, ...]) -> Scenario:
    return Scenario(
        f"{QUICK} quick clients {who} ask for a list of 1 MB each, beside {SLOW} that do not read for 8 s",
        "memory", ("04s", "04sb", "04", "04b"), "mixed-storm",
        ("--connections", str(QUICK), "--slow", str(SLOW), "--depth", "1", *options),
        timed=False, repeats=9, shown=("alone_p99_ms", "quick_p99_ms", "before_late", "late_answered", *RSS),
         budget=Budget(2 * QUICK + SLOW, LIST_BYTES), optional=("04sb", "04b"),
        ratios=beside_before("quick_p99_ms", "04s", "04"),
        bounds=(
            Bound("p99 of quick clients, times that without slow ones", "quick_ratio", MOST_TIMES, typical=True),
            Bound("answers", "answered", 2 * QUICK + SLOW, at_most=False),
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
    "lists-equal": Scenario(
        "5,000 equal requests for a list of 1 MB at once, 5,000 connections",
        "memory", ("01", "04", "04b", "06", "06p"), "late-readers",
        ("--connections", "5000", "--depth", "1", "--one-namespace", "--late", "0",
         "--receive-buffer", "0", "--threads", "2", "--broker", "{broker}"),
        timed=False, repeats=3, budget=Budget(5000, LIST_BYTES), optional=("04b", "06p"),
        shown=(*RSS, "questions", "seconds_to_end"), ratios=beside_before("seconds_to_end", "04"),
        bounds=(
            Bound("answers", "answered", 5000, at_most=False),
            Bound("questions that the broker saw", "questions", 50),
        ),
    ),
    "own-token-storm": _own_tokens("of proxies that have just started", 1.2, rehearsals=0),
    "own-token-storm-warm": _own_tokens("of proxies that have had four such storms", None, rehearsals=4),
    "relay-echo": Scenario(
        "relay, echo of 1 KiB, 50 connections",
        "paired", ("00c", "01", "02", "02b", "06", "07", "07s"), "relay",
        ("--connections", "50", "--frame-bytes", "1024"), "echo", relayed=True, optional=("02b",),
        ratios=(
            RELAY_LEAD,
            Ratio("02", ("06",), 1.15), Ratio("02", ("07", "07s"), 1.0),
            Ratio("02", ("07", "07s"), 1.0, quantity="cpu_us", at_most=True),
            Ratio("02", ("00c",), None, quantity="cpu_us", at_most=True),
            *RELAY_BESIDE,
        ),
    ),
    "relay-64k": Scenario(
        "relay, echo of 64 KiB, 4 connections, 16 outstanding each",
        "paired", BULK_ROWS, "relay", ("--connections", "4", "--frame-bytes", "65536", "--window", "16"), "echo",
        quantity="mb_per_second", relayed=True, optional=("02b",),
        ratios=(
            RELAY_LEAD,
            Ratio("02", ("06", "07", "07s"), 1.25),
            Ratio("02", ("07",), 0.4, quantity="cpu_us", at_most=True),
            Ratio("02", ("06",), 0.7, quantity="cpu_us", at_most=True),
            Ratio("02", ("00s",), None, quantity="cpu_us", at_most=True),
            *RELAY_BESIDE,
        ),
    ),
    "relay-128k": Scenario(
        "relay, 128 KiB frames into a sink, 4 connections, 8 outstanding each",
        "paired", BULK_ROWS, "relay",
        ("--connections", "4", "--frame-bytes", "131072", "--window", "8", "--receipts"), "sink",
        quantity="mb_per_second", relayed=True, optional=("02b",),
        ratios=(
            BULK_LEAD,
            Ratio("02", ("06",), 1.15),
            Ratio("02", ("06", "07", "07s"), 0.6, quantity="cpu_us", at_most=True),
            Ratio("02", ("00s",), None, quantity="cpu_us", at_most=True),
            *RELAY_BESIDE,
        ),
    ),
    "late-readers": Scenario(
        "4,000 lists of 1 MB outstanding, 4 KiB receive buffers, reading begins 8 s late",
        "memory", ("01", "04", "04b", "06", "06p"), "late-readers", ("--connections", "1000", "--depth", "4"),
        timed=False, shown=RSS, budget=Budget(1000, LIST_BYTES), optional=("04b", "06p"),
        ratios=beside_before("seconds_to_end", "04"),
        bounds=(Bound("answers", "answered", 4000, at_most=False),),
    ),
    "ping-storm": Scenario(
        "a small client's PING while 4,000 lists of 1 MB, a namespace per connection, are read 2 s late",
        "memory", ("04", "04b"), "late-readers",
        ("--connections", "1000", "--depth", "4", "--late", "2", "--pings",
         "--broker", "{broker}", "--control", "{second}"),
        timed=False, repeats=3, budget=Budget(1000, LIST_BYTES), second=(), shown=(*PINGS, *RSS), optional=("04b",),
        ratios=beside_before("ping_p99_ms", "04"),
        bounds=(
            Bound("PING to PONG, p99, ms", "ping_p99_ms", PING_P99_MILLIS),
            Bound("PING to PONG, max, ms", "ping_max_ms", None),
            Bound("answers", "answered", 4000, at_most=False),
        ),
    ),
    "mixed-storm": _mixed("that connect anew", ()),
    "mixed-storm-again": _mixed("that have had a list before", ("--again",)),
    "idle": Scenario(
        "memory of a connection at rest: slope from 1,000 to 4,000 after CONNECTED",
        "memory", ("04", "04b", "06", "07"), "idle", timed=False, shown=AT_REST, optional=("04b",),
        ratios=beside_before("bytes_per_connection", "04"),
        bounds=(Bound("bytes per connection at rest", "bytes_per_connection", CONNECTION_BYTES),),
    ),
    "stopped-consumers": Scenario(
        "500 relayed consumers that stop reading, 15 s after that; another beside them reads",
        "memory", ("02", "02p", "02k", "02b", "06"), "stopped-consumers",
        ("--connections", "500", "--seconds", "15"), "flood",
        relayed=True, timed=False, settings=(("tcpUserTimeoutMillis", "0"),), optional=("02b",),
        ratios=beside_before("bytes_per_connection", "02"),
        # Buffers of 500 brokers' sockets are more than the kernel gives all TCP of a machine: nobody would be fast.
        broker=("--send-buffer-bytes", "262144"),
        shown=(*AT_REST, "socket_bytes", "alone_mb_per_second", "beside_mb_per_second"),
        bounds=(
            Bound("process and sockets per consumer, defaults", "bytes_per_connection", 1.0 * MIB, rows=("02",)),
            Bound("process and sockets per consumer, pool", "bytes_per_connection", 0.35 * MIB, rows=("02p",)),
            Bound("process and sockets per consumer, no bounds", "bytes_per_connection", 1.0 * MIB, at_most=False,
                  rows=("02k",)),
            Bound("a reader's throughput, beside over alone", "reader_ratio", 0.95, at_most=False,
                  rows=("02", "02p")),
        ),
    ),
    "start": Scenario(
        "seconds from exec to the first CONNECTED, warm", "start", ("04", "04b", "06", "07"), quantity="seconds",
        optional=("04b",), ratios=(Ratio("04", ("04b",), 1.03, quantity="seconds", at_most=True),),
        bounds=(Bound("seconds from exec to CONNECTED", "seconds", 0.6, typical=True),),
    ),
}  # fmt: skip

SCENARIOS |= under_tls(SCENARIOS)
SCENARIOS |= hostile()
