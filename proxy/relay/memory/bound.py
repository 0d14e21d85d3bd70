"""The bound in sum for the kernel memory of all relayed sockets (`relaySocketMemoryMB`).

The kernel takes what a peer sends within its window, whether there is memory or not, and gives nothing back that was
acknowledged. So the bound is kept in two steps, at the look of each second: from `TIGHT_PERCENT` of the limit on
windows are narrowed and none is widened (`windows.py`); at the limit the relays that hold most are ended, until the
rest is below `AFTER_PERCENT`.

Relays to strangers end first: to hosts that their clients have made up (docs/adr/0039). Then those that stand still:
they hold more than they moved in a second. A client that overload control has paused comes after them, and one that
moves comes last. Among equals the network with most memory gives, until another has more: thousands of relays
with little memory each are a network's to answer for. In a network the largest relay that stands still goes first.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any, Final, Protocol

from limiter.sites import site_of
from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.relay.memory.sockets import SocketLoad, SocketMemory

TIGHT_PERCENT: Final = 50
AFTER_PERCENT: Final = 90


class RelayOrigins(Protocol):
    """Knows where relays come from and lead to (`proxy.clients.relay_crowds.RelayCrowds`)."""

    def network_of(self, relay: Any) -> str | None:
        """Return the network of a relay's client; None for a relay that has ended."""

    def is_stranger(self, relay: Any) -> bool:
        """Return whether the target of a relay was a stranger when somebody last asked."""

    def still_stranger(self, relay: Any) -> bool:
        """Ask whether the target of a relay is a stranger now."""


def to_end(loads: Iterable[SocketLoad], too_much: int, ours: int, origins: RelayOrigins) -> list[SocketLoad]:
    """Return the relays to end so that at least `too_much` bytes are free, as far as there are any.

    `ours`: the reasons of overload control for which a relay is not read.
    """
    there = [load for load in loads if origins.network_of(load.relay) is not None]
    choice = _Choice(too_much, origins)
    known = [load for load in there if not origins.is_stranger(load.relay)]
    known += choice.take(
        (load for load in there if origins.is_stranger(load.relay)),
        lambda load: not origins.still_stranger(load.relay),
    )
    paused = choice.take((load for load in known if not _moves(load)), lambda load: _is_paused(load, ours))
    choice.take(paused, lambda load: False)
    choice.take(filter(_moves, known), lambda load: False)
    return choice.chosen


class _Choice:
    """The relays that end; more are taken until `left` bytes are free."""

    def __init__(self, left: int, origins: RelayOrigins) -> None:
        self.chosen: list[SocketLoad] = []
        self._left = left
        self._origins = origins

    def take(self, loads: Iterable[SocketLoad], spares: Callable[[SocketLoad], bool]) -> list[SocketLoad]:
        """Take as many as have to end; return those on the way that `spares` leaves for later."""
        spared: list[SocketLoad] = []
        if self._left <= 0:
            return spared
        for load in _of_the_largest(loads, self._origins):
            if spares(load):
                spared.append(load)
                continue
            self.chosen.append(load)
            self._left -= load.size
            if self._left <= 0:
                break
        return spared


def _of_the_largest(loads: Iterable[SocketLoad], origins: RelayOrigins) -> Iterator[SocketLoad]:
    """Yield each load: the next is always of the network with most memory left, of the site with most memory left.

    The loads of a network that stand still come first, and the largest of them.
    """
    by_network: dict[str, list[SocketLoad]] = {}
    for load in loads:
        by_network.setdefault(origins.network_of(load.relay) or "", []).append(load)
    # Heaps of networks by site: memory below zero, a number of its own, and what is inside.
    by_site: dict[Hashable, list[tuple[int, int, list[SocketLoad]]]] = {}
    for number, (network, own) in enumerate(by_network.items()):
        own.sort(key=lambda load: (not _moves(load), load.size))
        by_site.setdefault(site_of(network), []).append((-sum(load.size for load in own), number, own))
    sites = [(sum(network[0] for network in inside), number, inside) for number, inside in enumerate(by_site.values())]
    for _, _, networks in sites:
        heapify(networks)
    heapify(sites)
    while sites:
        of_site, site, networks = sites[0]
        of_network, network_number, own = networks[0]
        load = own.pop()
        yield load
        if own:
            heapreplace(networks, (of_network + load.size, network_number, own))
        else:
            heappop(networks)
        if networks:
            heapreplace(sites, (of_site + load.size, site, networks))
        else:
            heappop(sites)


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
        origins: RelayOrigins,
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

    def look(self, held: SocketMemory, on_loop: Iterable[SocketLoad]) -> None:
        """Take the sum of the last second: have windows narrowed, and end relays at the limit."""
        size = sum(held)
        self.tight = size * 100 >= self.limit_bytes * TIGHT_PERCENT
        self._set_tight(self.tight)
        if size < self.limit_bytes:
            return
        loads = (load for load in (*on_loop, *self._of_threads()) if load.size)
        ended = to_end(loads, size - self.limit_bytes * AFTER_PERCENT // 100, self._ours, self._origins)
        for load in ended:
            load.relay.abort(DisconnectCause.MEMORY_LIMIT)
        self.ended += len(ended)
        if ended and self._pace.due(self._now()):
            self._log.warning(
                "relays ended: the kernel holds too much for relayed sockets (relaySocketMemoryMB)",
                connections=self.ended,
                held=size,
                limit=self.limit_bytes,
            )
