"""The bound in sum for the kernel memory of all relayed sockets (`relaySocketMemoryMB`).

The kernel takes what a peer sends within its window, whether there is memory or not, and gives nothing back that was
acknowledged. So the bound is kept in two steps, at the look of each second: from `TIGHT_PERCENT` of the limit on
windows are narrowed and none is widened (`memory/windows.py`); at the limit the relays that hold most are ended, until
the rest is below `AFTER_PERCENT`.

Relays to strangers end first: to hosts that their clients have made up (docs/adr/0039). Then those that stand still:
they hold more than they moved in a second. A client that overload control has paused comes after them, and one that
moves comes last. Among equals the network with most memory gives, until another has more: thousands of relays
with little memory each are a network's to answer for. In a network the largest relay that stands still goes first.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from heapq import heappop, heappush, heapreplace
from typing import Any, Final, NamedTuple

from limiter.sites import site_of
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.relay.engine import Relay
from proxy.relay.memory.sockets import SocketMemory
from proxy.relay.relay_crowds import RelayCrowds

TIGHT_PERCENT: Final = 50
AFTER_PERCENT: Final = 90
# Steps of the order between two pauses, some microseconds each: 20,000 relays in one step were 0.05 to 0.2 s of the
# loop. A relay that ends counts as several: both its sockets are closed.
LOADS_A_STEP: Final = 125
LOADS_AN_END: Final = 10


class SocketLoad(NamedTuple):
    """The kernel memory of a relay's sockets, and the bytes that it read in the last second."""

    relay: Relay
    size: int
    moved: int


def to_end(loads: Iterable[SocketLoad], too_much: int, ours: int, origins: RelayCrowds) -> Iterator[SocketLoad | None]:
    """Yield the relays to end so that at least `too_much` bytes are free, as far as there are any.

    None between them stands for a bit of work, after which the caller may pause: relays that have ended meanwhile are
    passed over, and free nothing. `ours`: the reasons of overload control for which a relay is not read.
    """
    if too_much <= 0:
        return
    strangers, still, paused, moving = _Line(), _Line(), _Line(), _Line()

    def known(load: SocketLoad) -> _Line:
        return moving if _moves(load) else still

    for load in loads:
        network = origins.network_of(load.relay)
        if network is not None:
            (strangers if origins.is_stranger(load.relay) else known(load)).add(network, load)
        yield None
    stages: tuple[tuple[_Line, Callable[[SocketLoad], _Line | None]], ...] = (
        (strangers, lambda load: None if origins.still_stranger(load.relay) else known(load)),
        (still, lambda load: paused if _is_paused(load, ours) else None),
        (paused, lambda load: None),
        (moving, lambda load: None),
    )
    for line, later_line in stages:
        for largest in line.largest():
            network = None if largest is None else origins.network_of(largest.relay)
            if largest is None or network is None:
                yield None
            elif (later := later_line(largest)) is not None:
                later.add(network, largest)
                yield None
            else:
                yield largest
                too_much -= largest.size
                if too_much <= 0:
                    return


class _Heap:
    """Loads of a network, or networks of a site, and their bytes in sum."""

    __slots__ = ("inside", "size")

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self.size = 0

    def push(self, item: tuple[Any, ...], size: int) -> None:
        heappush(self.inside, item)
        self.size += size


class _Line:
    """Loads of which the next is always of the network with most memory left, of the site with most memory left.

    The loads of a network that stand still come first, and the largest of them. No step sorts: each is O(log n), so
    that a caller may pause after any.
    """

    __slots__ = ("_count", "_networks")

    def __init__(self) -> None:
        self._count = 0
        self._networks: dict[str, _Heap] = {}

    def add(self, network: str, load: SocketLoad) -> None:
        """Add a load, before the first is taken."""
        self._count += 1
        item = _moves(load), -load.size, -self._count, load
        self._networks.setdefault(network, _Heap()).push(item, load.size)

    def largest(self) -> Iterator[SocketLoad | None]:
        """Yield each load in its turn, and None after each other bit of work."""
        # Heaps of networks by site: memory below zero, a number of its own, and what is inside.
        by_site: dict[Hashable, _Heap] = {}
        for number, (network, own) in enumerate(self._networks.items()):
            by_site.setdefault(site_of(network), _Heap()).push((-own.size, number, own.inside), own.size)
            yield None
        sites: list[tuple[int, int, list[Any]]] = []
        for number, site in enumerate(by_site.values()):
            heappush(sites, (-site.size, number, site.inside))
            yield None
        while sites:
            of_site, number, networks = sites[0]
            of_network, network_number, loads = networks[0]
            load: SocketLoad = heappop(loads)[-1]
            if loads:
                heapreplace(networks, (of_network + load.size, network_number, loads))
            else:
                heappop(networks)
            if networks:
                heapreplace(sites, (of_site + load.size, number, networks))
            else:
                heappop(sites)
            yield load


def _moves(load: SocketLoad) -> bool:
    return load.moved >= load.size


def _is_paused(load: SocketLoad, ours: int) -> bool:
    to_broker, to_client = load.relay.snapshot().paused
    return bool((to_broker | to_client) & ours)


class SocketBound:
    """Keeps the sum below `limit_bytes`; `set_tight` is told each second whether memory is short.

    `ours`: the reasons of overload control for which a relay is not read.
    """

    def __init__(
        self,
        limit_bytes: int,
        set_tight: Callable[[bool], None],
        of_threads: Callable[[], Iterable[SocketLoad]],
        origins: RelayCrowds,
        log: Logger,
        now: Callable[[], float],
        ours: int = 0,
    ) -> None:
        self.limit_bytes = limit_bytes
        # Relays that were ended, in all, and whether memory is short.
        self.ended = 0
        self.tight = False
        self._set_tight = set_tight
        self._of_threads = of_threads
        self._origins = origins
        self._log = log
        self._now = now
        self._ours = ours
        self._pace = LinePace()

    async def look(self, held: SocketMemory, pause: Callable[[], Awaitable[None]]) -> None:
        """Take the sum of the last second: have windows narrowed, and end relays at the limit, some at a time."""
        size = sum(held)
        self.tight = size * 100 >= self.limit_bytes * TIGHT_PERCENT
        self._set_tight(self.tight)
        if size < self.limit_bytes:
            return
        loads = (load for load in self._of_threads() if load.size)
        before, done = self.ended, 0
        for load in to_end(loads, size - self.limit_bytes * AFTER_PERCENT // 100, self._ours, self._origins):
            if load is not None:
                load.relay.abort(DisconnectCause.MEMORY_LIMIT)
                self.ended += 1
            done += 1 if load is None else LOADS_AN_END
            if done >= LOADS_A_STEP:
                done = 0
                await pause()
        if self.ended > before and self._pace.due(self._now()):
            self._log.warning(
                "relays ended: the kernel holds too much for relayed sockets (relaySocketMemoryMB)",
                connections=self.ended,
                held=size,
                limit=self.limit_bytes,
            )
