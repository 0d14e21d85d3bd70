"""The slots of one listener of the admin API, and who gives a slot up to a newcomer.

Rules: a connection holds a slot from its accept to its end. A connection whose request is complete, which needs the
token at `adminApiAddress`, keeps its slot. The oldest other one of the host with most gives way to a newcomer of a host
with fewer (sites first, `core/key_members.py`). Where no host has more, the oldest of the newcomer's own site
gives way, or of any host if that site has none, once it has been silent for `SILENT_SECONDS`. A look at the slots is
bounded by their number.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from limiter.sites import site_of
from proxy.core.key_members import KeyMembers
from proxy.core.tasks import do_nothing
from proxy.web.admin.access import Peer

# A client sends its request with its connection, so this is long for a whole request on one machine or in one network.
SILENT_SECONDS: Final = 0.25
REQUEST_SECONDS: Final = 5.0
# A reload may take ten seconds.
ANSWER_SECONDS: Final = 30.0


class AdminSlot:
    """The slot of an admin client: `cut` ends its connection, and a timer calls it."""

    __slots__ = ("_loop", "_timer", "cut", "peer", "served", "silent_since", "slots")

    def __init__(self, loop: asyncio.AbstractEventLoop, slots: "AdminSlots", peer: Peer) -> None:
        self._loop = loop
        self.slots = slots
        self._timer = loop.call_later(REQUEST_SECONDS, self.end)
        self.peer = peer
        self.cut: Callable[[], object] = do_nothing
        self.served = False
        self.silent_since: float | None = None

    @property
    def host(self) -> str:
        """Return what the client shares with all its other connections."""
        return self.peer.host

    def connected(self, abort: Callable[[], object]) -> None:
        """Called when a transport owns the socket; from then on `abort` ends the connection."""
        self.served = True
        # The proxy does not read before, at most while libraries are imported for the first client.
        self.silent_since = self._loop.time()
        self.cut = abort

    def request_received(self) -> None:
        """Called when the request is complete and permitted: stop its timer, and start the timer of the answer."""
        self.slots.proven(self)
        self._timer.cancel()
        self._timer = self._loop.call_later(ANSWER_SECONDS, self.end)

    def end(self) -> None:
        self.cut()

    def disconnected(self) -> None:
        """Called when the connection has ended: free the slot; a second call does nothing."""
        self._timer.cancel()
        self.slots.free(self)


class AdminSlots:
    """The books of at most `limit` connections."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: set[AdminSlot] = set()
        # Connections without a complete request, the oldest first.
        self._unproven: KeyMembers[str, AdminSlot] = KeyMembers()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> tuple[AdminSlot, ...]:
        """Return the connections that hold slots."""
        return tuple(self._held)

    @property
    def full(self) -> bool:
        """Return whether all slots are held."""
        return len(self._held) >= self._limit

    def take(self, connection: AdminSlot) -> None:
        """Record that a connection holds a slot."""
        self._held.add(connection)
        self._unproven.add(connection.host, connection)

    def proven(self, connection: AdminSlot) -> None:
        """Record that the request of a connection is complete and permitted."""
        self._unproven.remove(connection)

    def free(self, connection: AdminSlot) -> None:
        """Record that a connection is over; a second call does nothing."""
        self._held.discard(connection)
        self._unproven.remove(connection)

    def victim_for(self, host: str, now: float) -> AdminSlot | None:
        """Return the connection whose slot a newcomer of `host` takes; None if the newcomer has to go."""
        most = next(self._unproven.sizes.outweighing(host, 1), None)
        if most is not None:
            return next(iter(self._unproven.of(most)))
        anybody = not self._unproven.sizes[host]
        oldest = next((each for each in self._unproven if anybody or site_of(each.host) == site_of(host)), None)
        if oldest is None or oldest.silent_since is None or now - oldest.silent_since < SILENT_SECONDS:
            return None
        return oldest
