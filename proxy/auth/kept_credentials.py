"""The memory of large credentials that are kept to be forwarded, by clients in lookup mode.

Rule: credentials up to FREE_BYTES are part of what a client may cost. Larger ones are charged with the bytes above that
for as long as a client keeps them, and equal ones once: clients with the same token have it in common. Nobody waits for
this memory: a client that finds none is refused, and comes again. A part is for networks that hold nothing of it.

A relay keeps no credentials: its broker got them in CONNECT. A pooled connection keeps those of its principal beyond
its clients; the budget counts each such connection with the largest.
"""

from typing import Final

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.auth.identity import AuthenticationFailed, Principal

FREE_BYTES: Final = 4 * 1024
# Networks that hold nothing have one of so many parts of the memory to themselves.
KEPT_OF: Final = 8


class _Kept:
    __slots__ = ("permit", "principal", "users")

    def __init__(self, principal: Principal, permit: Permit) -> None:
        self.principal = principal
        self.permit = permit
        self.users = 0


class KeptCredentials:
    """The large credentials of clients, each once, with the number of clients that keep them."""

    def __init__(self, memory: AsyncSemaphore) -> None:
        self.memory = memory
        self._kept: dict[Principal, _Kept] = {}

    def keep(self, principal: Principal, network: str) -> Principal:
        """Return the principal to keep instead of an equal one; raise AuthenticationFailed if there is no memory.

        `network` is that of the client, which is charged, unless another client keeps the same credentials.
        The caller calls `release` when its client has other credentials, or is gone.
        """
        above = 0 if principal.original is None else len(principal.original.data) - FREE_BYTES
        if above <= 0:
            return principal
        kept = self._kept.get(principal)
        if kept is None:
            permit = self.memory.try_acquire(above, key=network)
            if permit is None:
                detail = (
                    f"no memory to keep credentials of {above + FREE_BYTES} bytes for brokers: clients keep"
                    f" {self.memory.held} of {self.memory.limit} bytes above {FREE_BYTES} each"
                    " (maxTopicListInFlightDirectMemSizeMB)"
                )
                raise AuthenticationFailed(detail, busy=True)
            kept = self._kept[principal] = _Kept(principal, permit)
        kept.users += 1
        return kept.principal

    def release(self, principal: object) -> None:
        """Release what a client kept; nothing for a principal without large credentials."""
        kept = self._kept.get(principal) if isinstance(principal, Principal) else None
        if kept is not None:
            kept.users -= 1
            if not kept.users:
                del self._kept[kept.principal]
                kept.permit.release()
