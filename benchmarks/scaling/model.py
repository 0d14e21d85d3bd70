"""The parts of a storm on a cluster: clients, proxies, links, brokers, and what each piece of work costs.

Values only, and the rule by which work that waits for one resource shares it. `play.py` lets the time pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# A name in a list has its tag and its length before it.
BYTES_BESIDE_A_NAME: Final = 2
# Clients wait for 30 s, the proxy's clock of a list ends after 28; docs/capacity.md counts with 25.
LATE_SECONDS: Final = 25.0
# A resource is the limit if it worked for so much of the storm's time.
LIMITING: Final = 0.6


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a processor, for each connection, request, byte or name.

    `read_byte` is paid once a question, `write_byte` once a client. The costs of clients matter only where these share
    the machine.
    """

    connect: float
    request: float
    read_byte: float
    write_byte: float
    name: float
    client_request: float = 0.0
    client_byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Storm:
    """Clients that connect within `window` seconds, evenly, and ask for one list each.

    `namespaces` is how many different lists there are; 0: each client asks for a list of its own.
    """

    clients: int
    names: int = 10_000
    name_bytes: int = 100
    namespaces: int = 1
    window: float = 1.0

    @property
    def list_bytes(self) -> int:
        """Return the bytes of an answer with a list: the names, and what the protocol adds to each."""
        return self.names * (self.name_bytes + BYTES_BESIDE_A_NAME)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Proxies, brokers and their links, in bytes a second.

    `machine_cores`: all processes, the clients too, share one machine of so many cores; None: each has a machine of its
    own, and a proxy one core of it. `connected`: clients are connected, and spread evenly, before the storm begins.
    """

    proxies: int
    brokers: int = 3
    broker_cores: float = 4.0
    link: float = 1.25e9
    broker_link: float = 1.25e9
    round_trip: float = 0.001
    direct_limit_bytes: float = 100e6
    client_link: float = 12.5e6
    machine_cores: float | None = None
    connected: bool = False

    def out_rate(self, storm: Storm) -> float:
        """Return the bytes a second that leave a proxy: its link, or what clients take of the lists memory has."""
        if storm.namespaces or self.machine_cores is not None:
            return self.link
        in_flight = max(1.0, self.direct_limit_bytes // storm.list_bytes)
        return min(self.link, in_flight * self.client_link)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a storm. Waits are from a client's connecting until the client has the list.

    `late` is the part of clients that waited longer than 25 s. `busy`: the part of the storm's time that the busiest of
    each kind of resource worked. `served` and `asked` have a figure for each step: clients served, questions put.
    """

    served_seconds: float
    connected_seconds: float
    questions: int
    broker_bytes: float
    client_bytes: float
    wait_p50: float
    wait_p99: float
    late: float
    fullest: int
    proxy_seconds: float
    busy: Mapping[str, float]
    step: float
    served: Sequence[float]
    asked: Sequence[float]

    @property
    def bottleneck(self) -> str:
        """Return the resource that was the limit, or that none was."""
        name = max(self.busy, key=lambda each: self.busy[each])
        return name if self.busy[name] >= LIMITING else "none"


@dataclass(slots=True)
class Stage:
    """Work of one kind that waits for a resource; `cost` is seconds of the resource for a piece."""

    cost: float
    waiting: int = 0
    busy: float = 0.0
    begun: float = 0.0

    @property
    def wanted(self) -> float:
        """Return the seconds that would end all that waits."""
        return max(0.0, self.waiting * self.cost - self.begun)

    def work(self, seconds: float) -> int:
        """Advance the work by so many seconds; return how many pieces that ended."""
        if not self.waiting:
            return 0
        self.busy += min(seconds, self.wanted)
        self.begun += seconds
        # A rounding error must not leave a piece that is done.
        done = min(self.waiting, int(self.begun / self.cost + 1e-6)) if self.cost else self.waiting
        self.waiting -= done
        self.begun = max(0.0, self.begun - done * self.cost) if self.waiting else 0.0
        return done


def shares(wanted: Sequence[float], capacity: float) -> list[float]:
    """Return what each gets of a capacity: equal parts, and what one does not need is for the others."""
    got = [0.0] * len(wanted)
    least_first = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for served, index in enumerate(least_first):
        got[index] = min(wanted[index], capacity / (len(wanted) - served))
        capacity -= got[index]
    return got


def classes(loads: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return (clients, proxies): each proxy for itself if there are few, else groups of alike ones, the fullest alone.

    Each proxy of a group has the mean, so that the sum may differ from that of the loads by one for two proxies.
    """
    if len(loads) <= most:
        return [(each, 1) for each in loads]
    ordered = sorted(loads, reverse=True)
    rest = ordered[1:]
    bounds = [len(rest) * number // (most - 1) for number in range(most)]
    groups = [rest[begin:end] for begin, end in pairwise(bounds)]
    return [(ordered[0], 1), *((round(sum(group) / len(group)), len(group)) for group in groups)]
