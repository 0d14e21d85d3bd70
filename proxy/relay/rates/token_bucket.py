"""A token bucket whose rate changes while it is in use. Pure: `now` comes in, nothing waits.

The native engine has the same arithmetic (`native/src/relay/slots.rs`); tests hold both equal.
"""

from typing import Final

# A bucket holds the tokens of this long; at least those of its floor.
CAPACITY_SECONDS: Final = 0.25
BYTES_FLOOR: Final = 65_536.0
MESSAGES_FLOOR: Final = 64.0
# A bucket that ran dry is ready again with the tokens of this long.
READY_SECONDS: Final = 0.016


class TokenBucket:
    """Tokens that come at a rate; a debit may leave a debt, which later tokens pay.

    Without a limit tokens come at the last rate, and nothing is debited.
    """

    __slots__ = ("_at", "_floor", "_limited", "_rate", "_tokens")

    def __init__(self, floor: float) -> None:
        self._floor = floor
        self._rate = self._tokens = self._at = 0.0
        self._limited = False

    @property
    def limited(self) -> bool:
        """Return whether there is a limit."""
        return self._limited

    def set_rate(self, rate: float | None, now: float) -> None:
        """Change the rate, None for no limit; tokens and debt stay, but for tokens that the new bucket cannot hold.

        The first bucket is full. Raises ValueError for a rate that is not above 0.
        """
        if rate is not None and not 0 < rate < float("inf"):
            raise ValueError(f"got a rate of {rate}, expected more than 0, or None for no limit")
        self._refill(now)
        self._limited = rate is not None
        if rate is None:
            return
        first, self._rate = self._rate == 0, rate
        self._tokens = self._capacity if first else min(self._tokens, self._capacity)

    def take(self, count: float, now: float) -> bool:
        """Take tokens, more than there are if need be; return whether some are left."""
        if not self._limited:
            return True
        self._refill(now)
        self._tokens -= count
        return self._tokens > 0

    def ready_at(self, now: float) -> float:
        """Return when a bucket that ran dry is ready again; a time not after `now` if it is."""
        if not self._limited:
            return now
        self._refill(now)
        return now + max(0.0, (READY_SECONDS * self._rate - self._tokens) / self._rate)

    @property
    def _capacity(self) -> float:
        return max(CAPACITY_SECONDS * self._rate, self._floor)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._tokens + self._rate * (now - self._at), self._capacity)
            self._at = now
