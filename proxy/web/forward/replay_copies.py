"""Copies of the bodies of requests, which a broker's redirect needs again.

Rules: a copy takes direct memory only while that is granted at once, and all copies together take a quarter of the
limit at most. When a request begins to wait for direct memory, the oldest copies are dropped until none has to wait: a
client that drips its upload must not keep topic lists from their memory. A request without a copy is answered with the
redirect itself. No I/O, no clock of its own.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters, counter

STEP_BYTES: Final = 64 * 1024
# The bodies of most requests are small: their copies must not take a whole step each.
FIRST_STEP_BYTES: Final = 4 * 1024
# All copies together take this part of the direct limit; without a limit they have a bound of their own.
SHARE: Final = 4
UNLIMITED_BYTES: Final = 25 * 1024 * 1024
DROPS_A_TURN: Final = 256
COPIES_DROPPED: Final = counter(
    "http_copies_dropped", "Copies of request bodies that were dropped for requests that waited."
)


class ReplayCopies:
    """The copies of one proxy. `soon` runs a callback in the next turn of the event loop."""

    def __init__(
        self, direct: AsyncSemaphore, counters: Counters, soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self.held_bytes = 0
        self._direct = direct
        self._counters = counters
        self._soon = soon
        self._making_room = False
        # Copies that hold permits, the oldest first.
        self._holding: dict[ReplayCopy, None] = {}
        direct.notify_waits(self._wanted)

    def new(self, limit_bytes: int, key: Hashable) -> "ReplayCopy":
        """Return the empty copy of a body of at most `limit_bytes`, for the client that `key` names."""
        return ReplayCopy(self, limit_bytes, key)

    def acquire(self, copy: "ReplayCopy", size: int) -> Permit | None:
        """Return a permit for `copy`, None if there is no memory for copies now."""
        limit = self._direct.limit
        if self.held_bytes + size > (limit // SHARE if limit > 0 else UNLIMITED_BYTES):
            return None
        try:
            permit = self._direct.try_acquire(size, key=copy.key)
        except PermitAcquireError:
            return None
        if permit is not None:
            self.held_bytes += permit.size
            self._holding[copy] = None
        return permit

    def release(self, copy: "ReplayCopy", permits: list[Permit]) -> None:
        """Release the permits of a copy."""
        self._holding.pop(copy, None)
        for permit in permits:
            self.held_bytes -= permit.size
            permit.release()

    def _wanted(self) -> None:
        # The semaphore must not be called from its own callback.
        if self._holding and not self._making_room:
            self._making_room = True
            self._soon(self._make_room)

    def _make_room(self) -> None:
        self._making_room = False
        for copy in list(islice(self._holding, DROPS_A_TURN)):
            if not self._direct.short:
                break
            self._drop(copy)
        if self._direct.short:
            self._wanted()
        elif self._direct.caps_keys:
            # A request of a key at its cap waits for the permits of that key only, the copies of its clients included.
            for copy in list(self._holding):
                if self._direct.waits_for_itself(copy.key):
                    self._drop(copy)

    def _drop(self, copy: "ReplayCopy") -> None:
        copy.give_up()
        self._counters[COPIES_DROPPED].value += 1


class ReplayCopy:
    """The sent part of a body, under direct permits; dropped when there is no memory for it."""

    __slots__ = ("_booked_bytes", "_bytes", "_copies", "_limit_bytes", "_permits", "key")

    def __init__(self, copies: ReplayCopies, limit_bytes: int, key: Hashable) -> None:
        self.key = key
        self._copies = copies
        self._limit_bytes = limit_bytes
        self._permits: list[Permit] = []
        self._booked_bytes = 0
        self._bytes: bytearray | None = bytearray()

    @property
    def whole(self) -> bool:
        """Return whether the copy has every byte that was sent."""
        return self._bytes is not None

    def keep(self, piece: bytes) -> None:
        """Append a piece that is being sent; drop the copy if there is no memory for it."""
        if self._bytes is None:
            return
        size = len(self._bytes) + len(piece)
        if size > self._limit_bytes or not self._acquire(size):
            self.give_up()
        else:
            self._bytes += piece

    @property
    def size(self) -> int:
        """Return the number of bytes in the copy."""
        return len(self._bytes or b"")

    def piece(self, start: int, size: int) -> bytes | None:
        """Return up to `size` bytes from `start`; None if the copy was dropped."""
        return None if self._bytes is None else bytes(self._bytes[start : start + size])

    def give_up(self) -> None:
        """Drop the copy and release its permits; a second call does nothing."""
        self._bytes = None
        permits, self._permits = self._permits, []
        self._copies.release(self, permits)

    def _acquire(self, size: int) -> bool:
        while self._booked_bytes < size:
            missing = -(-(size - self._booked_bytes) // FIRST_STEP_BYTES) * FIRST_STEP_BYTES
            step = min(STEP_BYTES, max(missing, self._booked_bytes))
            # A growing bytearray has spare room, and exists twice while it moves.
            permit = self._copies.acquire(self, step * 3 // 2)
            if permit is None:
                return False
            self._permits.append(permit)
            self._booked_bytes += step
        return True
