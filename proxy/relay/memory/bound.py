"""The bound in sum for the kernel memory of all relayed sockets (`relaySocketMemoryMB`).

The kernel takes what a peer sends within its window, whether there is memory or not, and gives nothing back that was
acknowledged. So the bound is kept in two steps, at the look of each second: from `TIGHT_PERCENT` of the limit on
windows are narrowed and none is widened (`windows.py`); at the limit the relays that hold most are ended, until the
rest is below `AFTER_PERCENT`. First those that stand still: they hold more than they moved in a second. A client that
overload control has paused comes after them, and one that moves comes last.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from proxy.core.errors import DisconnectCause
from proxy.core.log import LinePace, Logger
from proxy.relay.memory.sockets import SocketMemory

TIGHT_PERCENT: Final = 50
AFTER_PERCENT: Final = 90


class PausesOf(Protocol):
    """The part of a snapshot that says why a relay is not read (`engine.RelaySnapshot`)."""

    @property
    def paused(self) -> tuple[int, int]:
        """Return the reasons of both directions, as bits."""


class HeavyRelay(Protocol):
    """The part of a relay that the bound needs (`engine.Relay`)."""

    @property
    def moved_lately(self) -> int:
        """Return the bytes that were read between the last two looks."""

    def socket_bytes(self) -> SocketMemory:
        """Return the kernel memory of the relay's sockets, as far as the event loop has them."""

    def snapshot(self) -> PausesOf:
        """Return the relay as it is now."""

    def abort(self, cause: DisconnectCause) -> None:
        """Close both connections at once."""


class SocketLoad(NamedTuple):
    """The kernel memory of a relay's sockets, and the bytes that it read in the last second."""

    relay: HeavyRelay
    size: int
    moved: int


def to_end(loads: Iterable[SocketLoad], too_much: int, ours: int) -> list[SocketLoad]:
    """Return the relays to end so that at least `too_much` bytes are free, as far as there are any.

    `ours`: the reasons of overload control for which a relay is not read.
    """

    def rank(load: SocketLoad) -> tuple[bool, bool, int]:
        to_broker, to_client = load.relay.snapshot().paused
        return load.moved >= load.size, bool((to_broker | to_client) & ours), -load.size

    chosen: list[SocketLoad] = []
    for load in sorted(loads, key=rank):
        if too_much <= 0:
            break
        chosen.append(load)
        too_much -= load.size
    return chosen


class SocketBound:
    """Keeps the sum below `limit_bytes`; `set_tight` is told each second whether memory is short.

    `ours`: the reasons of overload control for which a relay is not read.
    """

    def __init__(
        self,
        limit_bytes: int,
        set_tight: Callable[[bool], None],
        of_threads: Callable[[], Iterable[SocketLoad]],
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
        self._log = log
        self._now = now
        self._ours = ours
        self._pace = LinePace()

    def look(self, held: SocketMemory, relays: Iterable[HeavyRelay]) -> None:
        """Take the sum of the last second: have windows narrowed, and end relays at the limit."""
        size = sum(held)
        self.tight = size * 100 >= self.limit_bytes * TIGHT_PERCENT
        self._set_tight(self.tight)
        if size < self.limit_bytes:
            return
        on_loop = [SocketLoad(relay, sum(relay.socket_bytes()), relay.moved_lately) for relay in relays]
        loads = (load for load in (*on_loop, *self._of_threads()) if load.size)
        ended = to_end(loads, size - self.limit_bytes * AFTER_PERCENT // 100, self._ours)
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
