"""Owns the words of the ladder: rows, scenarios, and the forms of what can be asked of them. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Server = Literal["none", "ours", "java", "haproxy"]

MIB = 1024 * 1024
# What a connection at rest may cost, and what TLS adds to it (docs/memory.md).
CONNECTION_BYTES = 8 * 1024
TLS_CONNECTION_BYTES = 56 * 1024


@dataclass(frozen=True)
class Row:
    """One rung: which server stands between client and broker, and how it is set."""

    title: str
    server: Server
    relayed: bool = False  # ask the proxy for a relay to the broker (CONNECT with proxy_to_broker_url)
    settings: tuple[tuple[str, str], ...] = ()
    before: bool = False  # an earlier version of the code (LADDER_BEFORE)


def _limits(heap_mb: int, direct_mb: int) -> tuple[tuple[str, str], ...]:
    return (
        ("maxTopicListInFlightHeapMemSizeMB", str(heap_mb)),
        ("maxTopicListInFlightDirectMemSizeMB", str(direct_mb)),
    )


SPILL = ("topicListSpillDirectory", "{lists}")
_TOPIC = (("eventLogTopic", "persistent://ladder/events/lists"), ("eventLogTopicServiceURL", "pulsar://{broker}"))

ROWS: dict[str, Row] = {
    "01": Row("no proxy", "none"),
    "02": Row("relay", "ours", relayed=True),
    "02r": Row("relay, no frame looked at", "ours", relayed=True, settings=(("watchTopicListLimitEnabled", "false"),)),
    "02b": Row("relay: the version before", "ours", relayed=True, before=True),
    "03": Row("+ decode", "ours", settings=_limits(0, 0)),
    "04": Row("+ limiter, idle", "ours", settings=_limits(100, 100)),
    "04b": Row("+ limiter, idle: the version before", "ours", settings=_limits(100, 100), before=True),
    "04e": Row("+ event log into files", "ours", settings=(*_limits(100, 100), ("eventLogDirectory", "{events}"))),
    "04p": Row("+ event log into a topic", "ours", settings=(*_limits(100, 100), *_TOPIC)),
    "04s": Row("+ a disk for slow readers' lists", "ours", settings=(*_limits(100, 100), SPILL)),
    "04t": Row("+ limiter, shared by tenant", "ours", settings=(*_limits(100, 100), ("topicListFairness", "tenant"))),
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
class Bound:
    """What each row of our own proxy must keep: the worst of its runs, or, if `typical`, their median."""

    what: str
    quantity: str
    required: float | None
    at_most: bool = True
    typical: bool = False
    floor: str = ""  # a quantity of the same run of which twice is allowed, if that is more


@dataclass(frozen=True)
class Budget:
    """What the promise about memory needs to know of a load (docs/memory.md)."""

    connections: int
    answer_bytes: int


@dataclass(frozen=True)
class Column:
    """A figure of the report's table: of all runs the median."""

    quantity: str
    title: str
    digits: int = 0
    mib: bool = False


@dataclass(frozen=True)
class Scenario:
    """A load, the rows it is run on, and what is asked of them.

    `{broker}`, `{second}` and `{web}` in `options` (in `broker`: `{second}`) are addresses known when it runs; in
    settings `{broker}` is that too, `{events}` an empty directory, and `{lists}` one that the proxy makes.
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
    repeats: int = 1  # of a row (memory), or of all rounds (paired)
    topics: int = 10_000
    settings: tuple[tuple[str, str], ...] = ()  # of our own proxy, over those of the row
    broker: tuple[str, ...] = ()
    second: tuple[str, ...] | None = None  # options of a second broker; there is none without
    columns: tuple[Column, ...] = ()
    bounds: tuple[Bound, ...] = ()
    budget: Budget | None = None
    optional: tuple[str, ...] = ()  # rows without which a run counts all the same
    # To the server; with "both" from there to the broker as well. Row 01 is then the fake broker under TLS.
    tls: Literal["", "in", "both"] = ""
    unended: bool = False  # lists that do not end in the time are no fault
    cpu: bool = False  # ask for the CPU time of the row's process (lists)
