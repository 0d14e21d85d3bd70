"""Own the claim: who is charged for an acquire, while it waits and while its permit is held; decide nothing.

Only the semaphore that was asked with a claim attaches anything to it.
"""

from collections.abc import Hashable
from typing import Protocol

from limiter.errors import PermitAcquireError
from limiter.permit import AcquireWaiter, Permit

__all__ = ["Charge", "require_hashable"]


def require_hashable(key: Hashable) -> None:
    """Raise TypeError for a key that cannot stand in a dict: later the error would leave half of a booking behind."""
    try:
        hash(key)
    except TypeError:
        raise TypeError(f"expected a hashable key, got {key!r}") from None


class ChargeOwner(Protocol):
    """What a claim asks of the semaphore that it was handed to."""

    name: str

    def reassign(self, charged: AcquireWaiter | Permit, key: Hashable) -> None:
        """Charge another key for one that waits or a permit."""

    def extend(self, waiter: AcquireWaiter) -> None:
        """Let one that waits go on for the semaphore's timeout from now."""


class Charge:
    """Hand it to one `acquire` or `try_acquire`, and later change who is charged with `recharge`.

    `about` says what it is for to who looks at the queue; nothing is decided by it.
    """

    __slots__ = ("_charged", "_key", "_owner", "about")

    def __init__(self, key: Hashable = None, about: Hashable = None) -> None:
        require_hashable(key)
        self._key = key
        self.about = about
        self._owner: ChargeOwner | None = None
        self._charged: AcquireWaiter | Permit | None = None

    @property
    def key(self) -> Hashable:
        """Return who is charged now, or will be."""
        return self._key

    @property
    def holding(self) -> tuple[str, int] | None:
        """Return the name of the semaphore and what is held of it now; None while nothing is."""
        charged = self._charged.permit() if isinstance(self._charged, AcquireWaiter) else self._charged
        if charged is None or charged.released or self._owner is None:
            return None
        return self._owner.name, charged.size

    def reassign(self, key: Hashable) -> None:
        """Charge `key` from now on.

        One that waits keeps its place in the order of arrival, among those of the new key; what a permit holds
        counts as the new key's, and what it cost is the new key's debt. Works before the acquire, too, and does
        nothing but change `key` once it has failed or its permit was released.
        """
        if key == self._key:
            return
        require_hashable(key)
        self._key = key
        if self._charged is not None and self._owner is not None:
            self._owner.reassign(self._charged, key)

    def extend(self) -> None:
        """Let the acquire that waits go on for the semaphore's timeout from now; nothing if none waits."""
        if isinstance(self._charged, AcquireWaiter) and self._owner is not None:
            self._owner.extend(self._charged)

    def begin(self) -> Hashable:
        """Return the key for a new acquire; raise ValueError if an earlier one still waits or is held."""
        charged = self._charged
        if isinstance(charged, AcquireWaiter) and charged.queue is None:
            charged = charged.permit()
        if isinstance(charged, AcquireWaiter) or (charged is not None and not charged.released):
            raise ValueError(f"expected a claim that is free, got one that is charged for {charged!r}")
        return self._key

    def attach(self, owner: ChargeOwner, charged: AcquireWaiter | Permit | PermitAcquireError) -> None:
        """Remember what is charged, nothing after a failure; called by the semaphore only."""
        self._owner = owner
        self._charged = None if isinstance(charged, PermitAcquireError) else charged
