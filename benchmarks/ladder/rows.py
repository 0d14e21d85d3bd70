"""Owns what is measured, as data: rows, scenarios, ratios with the figures they must reach. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Server = Literal["none", "ours", "java", "haproxy"]

MIB = 1024 * 1024


@dataclass(frozen=True)
class Row:
    """One rung: which server stands between client and broker, and how it is set."""

    title: str
    server: Server
    relayed: bool = False  # ask the proxy for a relay to the broker (CONNECT with proxy_to_broker_url)
    settings: tuple[tuple[str, str], ...] = ()


def _limits(heap_mb: int, direct_mb: int) -> tuple[tuple[str, str], ...]:
    return (
        ("maxTopicListInFlightHeapMemSizeMB", str(heap_mb)),
        ("maxTopicListInFlightDirectMemSizeMB", str(direct_mb)),
    )


ROWS: dict[str, Row] = {
    "01": Row("no proxy", "none"),
    "02": Row("relay", "ours", relayed=True),
    "03": Row("+ decode", "ours", settings=_limits(0, 0)),
    "04": Row("+ limiter, idle", "ours", settings=_limits(100, 100)),
    "05": Row("+ limiter, saturated", "ours", settings=_limits(8, 4)),
    "06": Row("Java proxy", "java"),
    "07": Row("HAProxy, TCP", "haproxy"),
}


@dataclass(frozen=True)
class Ratio:
    """What must be reached: a row's quantity over the largest of other rows' quantities."""

    over: str
    under: tuple[str, ...]
    required: float | None  # nothing is required of a ratio that is only good to know
    quantity: str = "per_second"
    at_most: bool = False
    validity: bool = False  # a run that misses it says nothing about the other ratios


@dataclass(frozen=True)
class Scenario:
    """A load, the rows it is run on, and what is asked of them."""

    title: str
    kind: Literal["paired", "memory", "start"]
    rows: tuple[str, ...]
    command: str = ""
    options: tuple[str, ...] = ()
    data: Literal["none", "echo", "sink", "flood"] = "none"
    quantity: str = "per_second"
    ratios: tuple[Ratio, ...] = ()
    relayed: bool = False  # every proxy that is asked for relays gets asked, the Java proxy too
    timed: bool = True  # takes --seconds
    notes: tuple[str, ...] = field(default=())


LIST_RATIOS = (
    Ratio("01", ("06",), 8.0, validity=True),
    Ratio("04", ("06",), 4.0),
    Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
    Ratio("05", ("04",), None),
    Ratio("03", ("02",), None),
)
LIST_ROWS = ("01", "02", "03", "04", "05", "06", "07")
RELAY_ROWS = ("01", "02", "06", "07")
RELAY_VALID = Ratio("01", ("02", "06", "07"), 1.5, validity=True)


def _storm(connections: int, times_java: float) -> Scenario:
    return Scenario(
        f"topic lists, one namespace, {connections} connections",
        "paired",
        ("01", "04", "06"),
        "lists",
        ("--connections", str(connections), "--one-namespace"),
        ratios=(
            Ratio("01", ("06",), 8.0, validity=True),
            Ratio("04", ("06",), times_java),
            Ratio("04", ("01",), 0.6),
            Ratio("04", ("06",), 0.125, quantity="peak_rss_bytes", at_most=True),
        ),
    )


SCENARIOS: dict[str, Scenario] = {
    "lists": Scenario(
        "topic lists of 10,000 names of 100 B, 16 connections, a namespace each",
        "paired", LIST_ROWS, "lists", ("--connections", "16"), ratios=LIST_RATIOS,
    ),
    "lists-storm": _storm(16, 10.0),
    "lists-storm-200": _storm(200, 12.0),
    "relay-echo": Scenario(
        "relay, echo of 1 KiB, 50 connections",
        "paired", RELAY_ROWS, "relay", ("--connections", "50", "--frame-bytes", "1024"), "echo", relayed=True,
        ratios=(RELAY_VALID, Ratio("02", ("06",), 1.5), Ratio("02", ("07",), 0.85)),
    ),
    "relay-64k": Scenario(
        "relay, echo of 64 KiB, 4 connections, 16 outstanding each",
        "paired", RELAY_ROWS, "relay", ("--connections", "4", "--frame-bytes", "65536", "--window", "16"), "echo",
        quantity="mb_per_second", relayed=True,
        ratios=(RELAY_VALID, Ratio("02", ("06", "07"), 1.3)),
    ),
    "relay-128k": Scenario(
        "relay, 128 KiB frames into a sink, 4 connections, 8 outstanding each",
        "paired", RELAY_ROWS, "relay",
        ("--connections", "4", "--frame-bytes", "131072", "--window", "8", "--receipts"), "sink",
        quantity="mb_per_second", relayed=True,
        ratios=(RELAY_VALID, Ratio("02", ("06", "07"), 1.3)),
    ),
    "late-readers": Scenario(
        "4,000 lists of 1 MB outstanding, 4 KiB receive buffers, reading begins 8 s late",
        "memory", ("01", "04", "06"), "late-readers", ("--connections", "1000", "--depth", "4"), timed=False,
    ),
    "idle": Scenario(
        "memory of a connection at rest: slope from 1,000 to 4,000 after CONNECTED",
        "memory", ("04", "06", "07"), "idle", timed=False,
    ),
    "stalled-consumers": Scenario(
        "500 relayed consumers that never read, a broker that floods them",
        "memory", ("02", "06", "07"), "stalled-consumers", ("--connections", "500"), "flood", relayed=True,
    ),
    "start": Scenario("seconds from exec to the first CONNECTED, warm", "start", ("04", "06", "07")),
}  # fmt: skip
