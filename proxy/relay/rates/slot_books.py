"""The books of topics that producers send to, by slot: counters, and the limits that slow producers down.

A slot is a number, so that counting a message costs no look-up of a name. All connections of a topic share a pair of
buckets, on the event loop and on the engine's threads: with the native engine the books are the extension's
(`native/src/relay/slots.rs`), else those here.
"""

from typing import Final, Protocol

from proxy.relay.rates.token_bucket import BYTES_FLOOR, MESSAGES_FLOOR, TokenBucket

# The slot of everything that has none of its own.
OTHER: Final = 0
MAX_PAUSE_MILLIS: Final = 5_000


class SlotBooks(Protocol):
    """The books of all slots. Times are those of the loop's clock, in seconds."""

    @property
    def max_pause_millis(self) -> int:
        """Return how long a pause for a rate may last before one frame passes."""

    def set_max_pause_millis(self, millis: int) -> None:
        """Change how long a pause for a rate may last."""

    def debit(self, slot: int, size: int, messages: int, now: float) -> bool:
        """Count messages; return whether the slot has tokens left."""

    def ready_at(self, slot: int, now: float) -> float:
        """Return when a slot that ran dry is ready again; a time not after `now` if it is."""

    def set_rate(
        self, slot: int, bytes_per_second: float | None, messages_per_second: float | None, now: float
    ) -> None:
        """Change the limits of a slot, None for no limit; raises ValueError for a rate that is not above 0."""

    def take(self, slot: int) -> tuple[int, int, bool, int]:
        """Return bytes, messages, whether a limit had no tokens left since the last call, and open producers."""

    def producers(self, slot: int) -> int:
        """Return how many producers of a slot are open, on all connections."""

    def clear(self, slot: int) -> None:
        """Empty a slot without producers: another topic gets it."""

    def hold(self, slot: int) -> None:
        """Count one more producer of the slot."""

    def let_go(self, slot: int) -> None:
        """Count one producer less."""

    def count_forced(self) -> None:
        """Count a frame that passes because its pause was too long."""

    def count_unreadable(self) -> None:
        """Count a connection whose sizes made no sense."""

    def counts(self) -> tuple[int, int, int]:
        """Return what is counted in all: frames that were forced, PRODUCERs not asked for, unreadable connections."""


class _SlotBook:
    __slots__ = ("by_bytes", "by_messages", "limited", "messages", "producers", "ran_dry", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = self.messages = self.producers = 0
        self.ran_dry = self.limited = False
        self.by_bytes, self.by_messages = TokenBucket(BYTES_FLOOR), TokenBucket(MESSAGES_FLOOR)


class LoopBooks:
    """The books of a proxy without the native engine."""

    def __init__(self) -> None:
        self._slots: dict[int, _SlotBook] = {}
        self._max_pause_millis = MAX_PAUSE_MILLIS
        self._forced = self._unreadable = 0

    @property
    def max_pause_millis(self) -> int:
        """Return how long a pause for a rate may last before one frame passes."""
        return self._max_pause_millis

    def set_max_pause_millis(self, millis: int) -> None:
        """Change how long a pause for a rate may last."""
        self._max_pause_millis = millis

    def debit(self, slot: int, size: int, messages: int, now: float) -> bool:
        """Count messages; return whether the slot has tokens left."""
        book = self._book(slot)
        book.size_bytes += size
        book.messages += messages
        if not book.limited:
            return True
        left = book.by_bytes.take(size, now)
        # Both are debited, whatever the first says.
        left = book.by_messages.take(messages, now) and left
        book.ran_dry |= not left
        return left

    def ready_at(self, slot: int, now: float) -> float:
        """Return when a slot that ran dry is ready again; a time not after `now` if it is."""
        book = self._book(slot)
        return max(book.by_bytes.ready_at(now), book.by_messages.ready_at(now)) if book.limited else now

    def set_rate(
        self, slot: int, bytes_per_second: float | None, messages_per_second: float | None, now: float
    ) -> None:
        """Change the limits of a slot, None for no limit; raises ValueError for a rate that is not above 0."""
        book = self._book(slot)
        book.by_bytes.set_rate(bytes_per_second, now)
        book.by_messages.set_rate(messages_per_second, now)
        book.limited = book.by_bytes.limited or book.by_messages.limited

    def take(self, slot: int) -> tuple[int, int, bool, int]:
        """Return bytes, messages, whether a limit had no tokens left since the last call, and open producers."""
        book = self._book(slot)
        ran_dry, book.ran_dry = book.ran_dry, False
        return book.size_bytes, book.messages, ran_dry, book.producers

    def producers(self, slot: int) -> int:
        """Return how many producers of a slot are open, on all connections."""
        return self._book(slot).producers

    def clear(self, slot: int) -> None:
        """Empty a slot without producers: another topic gets it."""
        self._slots.pop(slot, None)

    def hold(self, slot: int) -> None:
        """Count one more producer of the slot."""
        self._book(slot).producers += 1

    def let_go(self, slot: int) -> None:
        """Count one producer less."""
        self._book(slot).producers -= 1

    def count_forced(self) -> None:
        """Count a frame that passes because its pause was too long."""
        self._forced += 1

    def count_unreadable(self) -> None:
        """Count a connection whose sizes made no sense."""
        self._unreadable += 1

    def counts(self) -> tuple[int, int, int]:
        """Return what is counted in all: forced, unasked, unreadable; the loop asks for every slot."""
        return self._forced, 0, self._unreadable

    def _book(self, slot: int) -> _SlotBook:
        book = self._slots.get(slot)
        if book is None:
            book = self._slots[slot] = _SlotBook()
        return book
