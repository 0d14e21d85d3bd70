"""Owns the words of the ladder: rows, scenarios, and the forms of what can be asked of them. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Server = Literal["none", "bare", "ours", "java", "haproxy"]

MIB = 1024 * 1024
# The most that a connection at rest may cost, and what TLS adds to it (docs/memory.md).
CONNECTION_BYTES = 8 * 1024
TLS_CONNECTION_BYTES = 50 * 1024


@dataclass(frozen=True)
class Row:
    """A rung: which server stands between client and broker, and how it is set."""

    title: str
    server: Server
    relayed: bool = False  # ask the proxy for a relay to the broker (CONNECT with proxy_to_broker_url)
    settings: tuple[tuple[str, str], ...] = ()
    stand_in: bool = False  # the Java proxy with lists under the published limiter of 4.2.4
    before: bool = False  # an earlier version of the code (LADDER_BEFORE)
    splice: bool = False  # bytes stay in the kernel (bare, haproxy)


def _limits(heap_mb: int, direct_mb: int) -> tuple[tuple[str, str], ...]:
    return (
        ("maxTopicListInFlightHeapMemSizeMB", str(heap_mb)),
        ("maxTopicListInFlightDirectMemSizeMB", str(direct_mb)),
    )


SPILL = ("topicListSpillDirectory", "{lists}")

ROWS: dict[str, Row] = {
    "00c": Row("bare relay that copies", "bare"),
    "00s": Row("bare relay that splices", "bare", splice=True),
    "00t": Row("bare relay that opens and seals TLS", "bare"),
    "01": Row("no proxy", "none"),
    "02": Row("relay", "ours", relayed=True),
    "02p": Row(
        "relay, a pool of 16 MB",
        "ours",
        relayed=True,
        settings=(("relayMemoryPoolMB", "16"),),
    ),
    "02k": Row(
        "relay, no pool, the kernel's choice",
        "ours",
        relayed=True,
        settings=(("relayUnsentBytes", "0"), ("relaySocketMemoryMB", "0"), ("relayMemoryPoolMB", "-1")),
    ),
    "02b": Row("relay: the version before", "ours", relayed=True, before=True),
    "03": Row("+ decode", "ours", settings=_limits(0, 0)),
    "04": Row("+ limiter, idle", "ours", settings=_limits(100, 100)),
    "04b": Row("+ limiter, idle: the version before", "ours", settings=_limits(100, 100), before=True),
    "04s": Row("+ a disk for slow readers' lists", "ours", settings=(*_limits(100, 100), SPILL)),
    "04sb": Row("+ a disk: the version before", "ours", settings=(*_limits(100, 100), SPILL), before=True),
    "05": Row("+ limiter, saturated", "ours", settings=_limits(8, 4)),
    "06": Row("Java proxy", "java"),
    "06p": Row("stand-in: Java proxy, lists under PIP-442's limiter", "java", stand_in=True),
    "07": Row("HAProxy, TCP", "haproxy"),
    "07s": Row("HAProxy, TCP, splicing", "haproxy", splice=True),
}


@dataclass(frozen=True)
class Ratio:
    """A ratio that must be reached: a row's quantity over that of the best of other rows."""

    over: str
    under: tuple[str, ...]
    required: float | None  # nothing is required of a ratio that is only good to know
    quantity: str = "per_second"
    at_most: bool = False
    validity: bool = False  # a run that misses it says nothing about throughput


def beside_before(quantity: str, *rows: str) -> tuple[Ratio, ...]:
    """Return what a figure of rows is beside that of the version before: good to know, for a storm is few pairs."""
    return tuple(Ratio(row, (f"{row}b",), None, quantity=quantity, at_most=True) for row in rows)


@dataclass(frozen=True)
class Bound:
    """A bound that each row of our own proxy must keep: for the worst of its runs, or, if `typical`, their median."""

    what: str
    quantity: str
    required: float | None
    at_most: bool = True
    typical: bool = False
    floor: str = ""  # a quantity of the same run of which twice is allowed, if that is more
    rows: tuple[str, ...] = ()  # asked of these only, if any are named


@dataclass(frozen=True)
class Budget:
    """The figures of a load that the promise about memory needs (docs/memory.md)."""

    connections: int
    answer_bytes: int


@dataclass(frozen=True)
class Scenario:
    """A load, the rows it is run on, and what is asked of them.

    `{broker}`, `{second}` and `{web}` in `options` (in `broker`: `{second}`) are addresses known when it runs; in
    settings `{lists}` is a directory that the proxy makes.
    """

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
    repeats: int = 1  # repeats of a row (memory), or of all rounds (paired)
    topics: int = 10_000
    settings: tuple[tuple[str, str], ...] = ()  # settings of our own proxy, over those of the row
    broker: tuple[str, ...] = ()
    second: tuple[str, ...] | None = None  # options of a second broker; there is none without
    shown: tuple[str, ...] = ()  # figures of a run that are printed, beside those that all have
    bounds: tuple[Bound, ...] = ()
    budget: Budget | None = None
    optional: tuple[str, ...] = ()  # rows without which a run counts all the same
    tls: bool = False  # to the server; row 01 is then the fake broker under TLS
    tokens: int = 0  # so many clients present a token each, which both proxies forward to the broker

    @property
    def unit(self) -> str:
        """The unit that processor time is counted by."""
        if self.quantity == "mb_per_second":
            return "MB"
        return "list" if self.command == "lists" else "message"
