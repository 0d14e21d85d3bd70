"""Owns the words of the ladder: rows, scenarios, and the forms of what can be asked of them. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

Server = Literal["none", "bare", "ours", "java", "haproxy"]

MIB = 1024 * 1024
# The most that a connection at rest may cost, and what TLS adds to it (docs/memory.md).
CONNECTION_BYTES = 8 * 1024
TLS_CONNECTION_BYTES = 56 * 1024


@dataclass(frozen=True)
class Row:
    """A rung: which server stands between client and broker, and how it is set."""

    title: str
    server: Server
    relayed: bool = False  # ask the proxy for a relay to the broker (CONNECT with proxy_to_broker_url)
    settings: tuple[tuple[str, str], ...] = ()
    stand_in: bool = False  # the Java proxy with lists under the published limiter of 4.2.4
    before: bool = False  # an earlier version of the code (LADDER_BEFORE)
    threads: int = 0  # threads of the server (bare, haproxy); 0: as many as it has by itself
    splice: bool = False  # bytes stay in the kernel (bare, haproxy)
    server_of: str = ""  # the row whose server this is, under another load
    load: tuple[str, ...] = ()  # options of the load generator, over the scenario's
    neighbour: bool = False  # the machine has a busy neighbour meanwhile


def _limits(heap_mb: int, direct_mb: int) -> tuple[tuple[str, str], ...]:
    return (
        ("maxTopicListInFlightHeapMemSizeMB", str(heap_mb)),
        ("maxTopicListInFlightDirectMemSizeMB", str(direct_mb)),
    )


def _relays(engine: str, threads: int | None = None) -> tuple[tuple[str, str], ...]:
    return (("relayEngine", engine), *(() if threads is None else (("numIOThreads", str(threads)),)))


SPILL = ("topicListSpillDirectory", "{lists}")
# Counting, and nothing that slows anybody.
COUNTING = (
    ("adaptivePublisherThrottlingEnabled", "true"),
    ("adaptivePublisherThrottlingObserveOnly", "true"),
    ("overloadSignals", "proxy"),
)
_TOPIC = (("eventLogTopic", "persistent://ladder/events/lists"), ("eventLogTopicServiceURL", "pulsar://{broker}"))

ROWS: dict[str, Row] = {
    "00c": Row("bare relay that copies", "bare", threads=1),
    "00c-2": Row("bare relay that copies, 2 threads", "bare", threads=2),
    "00s": Row("bare relay that splices", "bare", threads=1, splice=True),
    "00s-2": Row("bare relay that splices, 2 threads", "bare", threads=2, splice=True),
    "00t": Row("bare relay that opens and seals TLS", "bare", threads=1),
    "00t-2": Row("bare relay that opens and seals TLS, 2 threads", "bare", threads=2),
    "01": Row("no proxy", "none"),
    "02": Row("relay", "ours", relayed=True),
    "02-1": Row("relay, 1 thread", "ours", relayed=True, settings=_relays("native", 1)),
    "02-2": Row("relay, 2 threads", "ours", relayed=True, settings=_relays("native", 2)),
    "02a": Row("relay in the interpreter", "ours", relayed=True, settings=_relays("asyncio")),
    "02r": Row("relay, no frame looked at", "ours", relayed=True, settings=(("watchTopicListLimitEnabled", "false"),)),
    "02c": Row("relay, messages counted by topic", "ours", relayed=True, settings=COUNTING),
    "02p": Row(
        "relay, a pool of 16 MB and small receive buffers",
        "ours",
        relayed=True,
        settings=(("relayMemoryPoolMB", "16"), ("relayReceiveBufferBytes", "131072")),
    ),
    "02q": Row("relay, a pool of 64 MB", "ours", relayed=True, settings=(("relayMemoryPoolMB", "64"),)),
    "02n": Row("relay, no bound in sum", "ours", relayed=True, settings=(("relaySocketMemoryMB", "0"),)),
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
    "04e": Row("+ event log into files", "ours", settings=(*_limits(100, 100), ("eventLogDirectory", "{events}"))),
    "04p": Row("+ event log into a topic", "ours", settings=(*_limits(100, 100), *_TOPIC)),
    "04s": Row("+ a disk for slow readers' lists", "ours", settings=(*_limits(100, 100), SPILL)),
    "04t": Row("+ limiter, shared by tenant", "ours", settings=(*_limits(100, 100), ("topicListFairness", "tenant"))),
    "05": Row("+ limiter, saturated", "ours", settings=_limits(8, 4)),
    "06": Row("Java proxy", "java"),
    "06p": Row("stand-in: Java proxy, lists under PIP-442's limiter", "java", stand_in=True),
    "07": Row("HAProxy, TCP", "haproxy"),
    "07-1": Row("HAProxy, TCP, 1 thread", "haproxy", threads=1),
    "07-2": Row("HAProxy, TCP, 2 threads", "haproxy", threads=2),
    "07s": Row("HAProxy, TCP, splicing", "haproxy", splice=True),
}

# Lists of as many bytes on the wire as 10,000 names of 100 B, each with its tag and length.
NAMES: Final = {
    "20": ("46364x20", "46,364 names of 20 B"),
    "512": ("1981x512", "1,981 names of 512 B"),
    "utf8": ("10000x100u", "10,000 names of 100 B that are not ASCII"),
}


def _under_other_loads() -> Iterator[tuple[str, Row]]:
    for name, (form, title) in NAMES.items():
        yield f"04-{name}", replace(ROWS["04"], title=title, server_of="04", load=("--names", form))
    for name in ("00c", "02", "04", "06", "07"):
        title = f"{ROWS[name].title}; a busy neighbour"
        yield f"{name}-busy", replace(ROWS[name], title=title, server_of=name, neighbour=True)


ROWS |= dict(_under_other_loads())


@dataclass(frozen=True)
class Ratio:
    """A ratio that must be reached: a row's quantity over that of the best of other rows."""

    over: str
    under: tuple[str, ...]
    required: float | None  # nothing is required of a ratio that is only good to know
    quantity: str = "per_second"
    at_most: bool = False
    validity: bool = False  # a run that misses it says nothing about throughput
    note: str = ""  # when this is asked, if not always


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
    repeats: int = 1  # repeats of a row (memory), or of all rounds (paired)
    topics: int = 10_000
    settings: tuple[tuple[str, str], ...] = ()  # settings of our own proxy, over those of the row
    broker: tuple[str, ...] = ()
    second: tuple[str, ...] | None = None  # options of a second broker; there is none without
    columns: tuple[Column, ...] = ()
    bounds: tuple[Bound, ...] = ()
    budget: Budget | None = None
    optional: tuple[str, ...] = ()  # rows without which a run counts all the same
    # To the server; with "both" from there to the broker as well. Row 01 is then the fake broker under TLS.
    tls: Literal["", "in", "both"] = ""
    tokens: int = 0  # so many clients present a token each, which both proxies forward to the broker
    unended: bool = False  # lists that do not end in the time are no fault

    @property
    def unit(self) -> str:
        """The unit that processor time is counted by."""
        if self.quantity == "mb_per_second":
            return "MB"
        return "list" if self.command == "lists" else "message"
