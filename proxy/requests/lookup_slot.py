"""A place among the concurrent lookups, which ends with the last who needs it: the request or the broker's work."""

from collections.abc import Callable

from limiter.permit import Permit


class Slot:
    """Hold one of `maxConcurrentLookupRequests` until the request and every question asked for it are over.

    A client that leaves does not end what a broker is still doing for it; otherwise a client could ask without bound by
    connecting again and again.
    """

    __slots__ = ("_permit", "_users")

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self._users = 1

    def share(self) -> Callable[[], None]:
        """Add a user; the callable given ends its use and must be called exactly once."""
        self._users += 1
        return self.release

    def release(self) -> None:
        """End one use."""
        self._users -= 1
        if not self._users:
            self._permit.release()
