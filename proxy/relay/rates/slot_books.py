"""The books of topics that producers send to, by slot: counters, and the limits that slow producers down.

A slot is a number, so that counting a message costs no look-up of a name. All connections of a topic share a pair of
buckets of tokens, in the books of the extension (`native/src/relay/slots.rs`).
"""

from typing import Final, Protocol

# The slot of everything that has none of its own.
OTHER: Final = 0
# A bucket holds the tokens of this long; at least those of its floor.
CAPACITY_SECONDS: Final = 0.25
BYTES_FLOOR: Final = 65_536.0
MESSAGES_FLOOR: Final = 64.0


class SlotBooks(Protocol):
    """The class `SlotBooks` of the extension. Times are those of the loop's clock, in seconds."""

    def set_max_pause_millis(self, millis: int) -> None:
        """Change how long a pause for a rate may last before a frame passes: 5 s, far below clients' `sendTimeout`."""

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

    def counts(self) -> tuple[int, int, int]:
        """Return what is counted in all: frames that were forced, PRODUCERs not asked for, unreadable connections."""
