"""The places of requests that are under way (`maxConcurrentLookupRequests`), and of topic lists among them."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from limiter.clock import Clock
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.requests.broker_turns import Asker

if TYPE_CHECKING:
    from proxy.requests.request_bytes import RequestBytes

# This part of the places is kept for lookups and schemas.
KEPT_OF: Final = 4
# When this part of the limit waits, each connection may let only FEW_WAITING lists wait.
CROWDED_SHARE: Final = 8
FEW_WAITING: Final = 1


class Slot:
    """Holds one of `maxConcurrentLookupRequests` until the request and every question asked for it are over.

    A client that leaves does not end what a broker is still doing for it; otherwise a client could ask without bound by
    connecting again and again.
    """

    __slots__ = ("_bytes", "_permit", "_size", "_users", "arrived", "asker")

    def __init__(
        self, permit: Permit, asker: Asker, arrived: float, held: "RequestBytes | None" = None, size: int = 0
    ) -> None:
        # The command's bytes, charged while they are held for a broker.
        self._bytes, self._size = held, size
        if held is not None:
            held.hold(asker[0], size)
        # The network and the connection that ask, by which requests take turns.
        self.asker = asker
        # From then on the request's time runs.
        self.arrived = arrived
        self._permit = permit
        self._users = 1

    def share(self) -> Callable[[], None]:
        """Add a user; return the callable that ends its use, to be called exactly once."""
        self._users += 1
        return self.release

    def release(self) -> None:
        """End one use."""
        self._users -= 1
        if not self._users:
            self._permit.release()
            if self._bytes is not None:
                self._bytes.release(self.asker[0], self._size)


class ListPlaces:
    """The places of topic lists that have begun, in turns by role, and the number of those that wait.

    A list that waits, for an earlier list of its connection or a place, holds none of `maxConcurrentLookupRequests`:
    otherwise a client that pipelines lists would take the places of all lookups. Lists that wait cost memory: once many
    of all connections do, a connection may let few of its own wait, and is not read meanwhile.
    """

    __slots__ = ("_begun", "_limit", "waiting")

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._begun = AsyncSemaphore("lists", _share(limit), max_queue=0, timeout_seconds=0, clock=clock)
        self.waiting = 0

    def set_limit(self, limit: int) -> None:
        """Change `maxConcurrentLookupRequests`; lists that have begun go on."""
        self._limit = limit
        self._begun.set_limit(_share(limit))

    @property
    def held(self) -> int:
        """Count the lists that have begun."""
        return self._begun.held

    @property
    def queue_size(self) -> int:
        """Count the lists that wait for a place, of the first of their connections."""
        return self._begun.queue_size

    @property
    def crowded(self) -> bool:
        """Return whether so many lists wait that no connection may let many wait."""
        return self.waiting > self._limit // CROWDED_SHARE

    def try_begin(self, role: Hashable) -> Permit | None:
        """Return a place for a list of `role`; None if there is none, or others wait. The caller releases it."""
        return self._begun.try_acquire(1, key=role)

    async def begin(self, role: Hashable, seconds: float) -> Permit | None:
        """Return a place for a list of `role`, or None if none was free in `seconds`. The caller releases it."""
        # Turns cost something: nobody pays for them until a list has to wait.
        self._begun.set_sharing(True, 100)
        try:
            return await self._begun.acquire(1, key=role, timeout_seconds=seconds)
        except PermitAcquireError:
            return None


def _share(limit: int) -> int:
    return max(1, limit - limit // KEPT_OF)
