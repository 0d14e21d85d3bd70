"""The key that is charged for one acquire, changeable while the acquire waits and while its permit is held.

A charge decides nothing. Only the semaphore that got the charge with a request attaches a waiter or a permit.
"""

from collections.abc import Hashable
from typing import Protocol

from limiter.errors import PermitAcquireError
from limiter.permit import AcquireWaiter, Permit

__all__ = ["Charge", "require_hashable"]


def require_hashable(key: Hashable) -> None:
    """Raise TypeError for a key that cannot be in a dict; raised later, the error would leave a half-made booking."""
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"expected a hashable key, got {key!r}") from None


class ChargeOwner(Protocol):
    """The part of a semaphore that a charge calls."""

    name: str

    def reassign(self, charged: AcquireWaiter | Permit, key: Hashable) -> None:
        """Charge another key for a waiter or a permit."""

    def extend(self, waiter: AcquireWaiter) -> None:
        """Extend a wait to the semaphore's timeout from now."""


class Charge:
    """The key of one `acquire` or `try_acquire`, changed with `reassign`.

    `about` names the purpose for a reader of the queue (`AsyncSemaphore.waiters`) and decides nothing.
    """

    __slots__ = ("_charged", "_key", "_owner", "about")

    def __init__(self, key: Hashable = None, about: Hashable = None) -> None:
        try:
            hash(key)
        except TypeError:
            require_hashable(key)
        self._key = key
        self.about = about
        self._owner: ChargeOwner | None = None
        self._charged: AcquireWaiter | Permit | None = None

    @property
    def key(self) -> Hashable:
        """Return the key that is charged now, or will be."""
        return self._key

    @property
    def holding(self) -> tuple[str, int] | None:
        """Return the name of the semaphore and the size held now; None while nothing is held."""
        charged = self._charged.permit() if isinstance(self._charged, AcquireWaiter) else self._charged
        if charged is None or charged.released or self._owner is None:
            return None
        return self._owner.name, charged.size

    def reassign(self, key: Hashable) -> None:
        """Charge `key` from now on; raise TypeError for a key that is not hashable.

        A waiter keeps its place in the order of arrival, among the waiters of the new key. The size of a permit, and
        the deficit it caused, become the new key's. Before the acquire, after its failure and after the release, only
        `key` changes.
        """
        if key == self._key:
            return
        require_hashable(key)
        self._key = key
        if self._charged is not None and self._owner is not None:
            self._owner.reassign(self._charged, key)

    def extend(self) -> None:
        """Extend the wait to the semaphore's timeout from now; do nothing if no acquire waits."""
        if isinstance(self._charged, AcquireWaiter) and self._owner is not None:
            self._owner.extend(self._charged)

    def begin(self) -> Hashable:
        """Return the key for a new acquire; raise ValueError while an earlier acquire waits or its permit is held."""
        charged = self._charged
        if isinstance(charged, AcquireWaiter) and charged.queue is None:
            charged = charged.permit()
        if isinstance(charged, AcquireWaiter) or (charged is not None and not charged.released):
            raise ValueError(f"expected an unused charge, got one in use for {charged!r}")
        return self._key

    def attach(self, owner: ChargeOwner, charged: AcquireWaiter | Permit | PermitAcquireError) -> None:
        """Store the waiter or permit that is charged, or nothing after a failure; called by the semaphore only."""
        self._owner = owner
        self._charged = None if isinstance(charged, PermitAcquireError) else charged
        if isinstance(charged, AcquireWaiter):
            charged.about = self.about
