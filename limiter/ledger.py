"""The accounts of one semaphore: the limit, how much each key holds, and which permit overshoots the limit.

Integers only: no queue, no time, no await. `resize` is the only place where `held` changes, so `held` is the sum of all
permits' sizes after every call. Only two things can exceed the limit: permits held when the limit was lowered, and one
overshoot (the excess of one growth, KIP-72's soft bound). A clamped oversize acquire stays at the limit.
"""

import sys
from collections.abc import Hashable

from limiter.permit import Permit
from limiter.sites import SiteKey

__all__ = ["MUST_WAIT", "Ledger"]

MUST_WAIT = -1


class Ledger:
    """The limit and the sizes held, by key; with `limit <= 0` every size fits and is counted all the same.

    Keys that hold nothing have one of `kept_of` parts of the limit to themselves; 0: no part.
    """

    __slots__ = (
        "_sites", "held", "holders", "kept_of", "keyed", "limit", "overshooter", "overshoots", "overshot_from",
        "peak_held",
    )  # fmt: skip

    def __init__(self, limit: int, kept_of: int = 0) -> None:
        self.limit = limit
        self.kept_of = kept_of
        self.held = 0
        self.peak_held = 0
        self.holders: dict[Hashable, int] = {}
        self.keyed = 0  # the sum of `holders`; the rest of `held` has no key
        self._sites: dict[Hashable, int] = {}  # by site: the sum of what its keys hold
        self.overshooter: Permit | None = None
        self.overshot_from = 0  # the overshooter's size before it overshot
        self.overshoots = 0

    def set_limit(self, limit: int) -> None:
        """Change the limit; permits keep their sizes."""
        self.limit = limit
        if self.held <= limit or limit <= 0:
            self.overshooter = None

    def room_for(self, n: int) -> int:
        """Return the size to book for an acquire of `n` at the head of the line, or MUST_WAIT.

        An acquire larger than the limit gets the limit, once nothing is held.
        """
        limit = self.limit
        if limit <= 0 or n <= limit - self.held or n == 0:
            return n
        return limit if n > limit and self.held == 0 else MUST_WAIT

    def may_grow(self, permit: Permit, n: int) -> bool:
        """Return whether `permit` may become `n` now: `n` fits, or no other permit overshoots.

        The overshooter itself may grow further, because other growth may be waiting for its end. `held <= limit` is no
        substitute: with a limit lowered below what is held, all growers would wait for each other.
        """
        return (
            self.limit <= 0
            or self.held + n - permit.size <= self.limit
            or self.overshooter is None
            or self.overshooter is permit
        )

    def resize(self, permit: Permit, n: int) -> None:
        """Record the new size of `permit`; a caller that grows a permit checks `may_grow` first."""
        delta = n - permit.size
        if not delta:
            return
        held = self.held = self.held + delta
        if held > self.peak_held:
            self.peak_held = held
        if self.overshooter is not None:
            self._end_overshoot(permit, n)
        elif delta > 0 and held > self.limit > 0:
            self.overshoots += 1
            self.overshooter = permit
            self.overshot_from = permit.size
        if permit.key is not None:
            self._add_to_key(permit.key, delta)
        permit.size = n

    def _end_overshoot(self, permit: Permit, n: int) -> None:
        # A shrink that stays above the old size does not end the overshoot, or a hundred permits could each overshoot
        # by a list, release one byte, and let the next permit overshoot.
        if self.held <= self.limit or (permit is self.overshooter and n <= self.overshot_from):
            self.overshooter = None

    @property
    def available(self) -> int:
        """Return how much is free, never below 0; `sys.maxsize` if unlimited."""
        return max(0, self.limit - self.held) if self.limit > 0 else sys.maxsize

    def held_by(self, key: Hashable) -> int:
        """Return how much the permits of `key` hold; None stands for all permits without a key."""
        return self.held - self.keyed if key is None else self.holders.get(key, 0)

    def held_by_site(self, key: Hashable) -> int:
        """Return how much all keys of the site of `key` hold, which for most keys is what the key holds."""
        return self._sites.get(key.site, 0) if isinstance(key, SiteKey) else self.held_by(key)

    @property
    def open_limit(self) -> int:
        """Return how much may be held after an acquire of a key that holds something; `sys.maxsize`: no bound."""
        kept = self.limit // self.kept_of if self.kept_of else 0
        return self.limit - kept if kept > 0 else sys.maxsize

    def _add_to_key(self, key: Hashable, delta: int) -> None:
        self.keyed += delta
        _add(self.holders, key, delta)
        if isinstance(key, SiteKey):
            _add(self._sites, key.site, delta)


def _add(sums: dict[Hashable, int], key: Hashable, delta: int) -> None:
    holds = sums.get(key, 0) + delta
    if holds:
        sums[key] = holds
    else:
        del sums[key]
