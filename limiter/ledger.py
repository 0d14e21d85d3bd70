"""Own the books of one semaphore: the limit, who holds how much of it, and which permit overshoots it.

Integers only: no queue, no time, no await. `resize` is the one place where `held` changes, so `held` is the
sum of the sizes of all permits after every call. Above the limit stand only: what was held when the limit was
lowered, and one overshoot (the excess of one growth, KIP-72's soft bound; the clamped oversize acquire stays
at the limit).
"""

from collections.abc import Hashable

from limiter.permit import Permit

__all__ = ["MUST_WAIT", "Ledger"]

MUST_WAIT = -1


class Ledger:
    """Say what fits and book it; `limit <= 0` lets everything fit and books all the same."""

    __slots__ = ("held", "holders", "keyed", "limit", "overshooter", "overshoots", "overshot_from", "peak_held")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.peak_held = 0
        self.holders: dict[Hashable, int] = {}
        self.keyed = 0  # their sum: the rest of what is held has no key
        self.overshooter: Permit | None = None
        self.overshot_from = 0  # the overshooter's size before it overshot
        self.overshoots = 0

    def set_limit(self, limit: int) -> None:
        """Change the limit; what is held stays held."""
        self.limit = limit
        if self.held <= limit or limit <= 0:
            self.overshooter = None

    def room_for(self, n: int) -> int:
        """Return what to book for the newcomer that is first in line, or MUST_WAIT.

        One larger than the limit gets the limit, when nothing is held.
        """
        limit = self.limit
        if limit <= 0 or n <= limit - self.held or n == 0:
            return n
        return limit if n > limit and self.held == 0 else MUST_WAIT

    def may_grow(self, permit: Permit, n: int) -> bool:
        """Return whether `permit` may become `n` now: it fits, or no other permit overshoots.

        The overshooter itself may grow on, others may be waiting for its end. Not `held <= limit` decides:
        after the limit was lowered below what is held, that would never be so and all growers would wait for
        each other.
        """
        return (
            self.limit <= 0
            or self.held + n - permit.size <= self.limit
            or self.overshooter is None
            or self.overshooter is permit
        )

    def resize(self, permit: Permit, n: int) -> None:
        """Book the new size of `permit`; whoever grows one asks `may_grow` first."""
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
        # A shrink that stays above the old size does not end the overshoot, or a hundred permits could each
        # overshoot by a list, give back one byte, and let the next one overshoot.
        if self.held <= self.limit or (permit is self.overshooter and n <= self.overshot_from):
            self.overshooter = None

    def held_by(self, key: Hashable) -> int:
        """Return what the permits of `key` hold; all permits without a key are those of None."""
        return self.held - self.keyed if key is None else self.holders.get(key, 0)

    def reassign(self, permit: Permit, key: Hashable) -> None:
        """Charge what `permit` holds to another key; `held` stays as it is."""
        if permit.size:
            if permit.key is not None:
                self._add_to_key(permit.key, -permit.size)
            if key is not None:
                self._add_to_key(key, permit.size)
        permit.key = key

    def _add_to_key(self, key: Hashable, delta: int) -> None:
        self.keyed += delta
        holds = self.holders.get(key, 0) + delta
        if holds:
            self.holders[key] = holds
        else:
            del self.holders[key]
