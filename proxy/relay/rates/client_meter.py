"""The meter of one client: counts its messages by producer, and says how long the client waits for tokens.

For relays on the event loop; the meter of the threads is `native/src/relay/meter.rs`. No I/O, no clock.
"""

from collections.abc import Hashable
from typing import Final, Protocol

from protocol.producer_scanner import ProducerScanner
from proxy.relay.rates.slot_books import OTHER, SlotBooks

# Producers of one connection that have slots of their own.
MOST_PRODUCERS: Final = 1_024
# Slots without tokens that one connection waits for; it meets the others again when it sends.
MOST_DRY: Final = 64


class SlotTable(Protocol):
    """The table of topics and their slots (`proxy.relay.topic_slots.TopicSlots`)."""

    @property
    def books(self) -> SlotBooks:
        """Return the counters and limits, by slot."""

    def slot_of(self, topic: bytes, network: Hashable = None) -> int:
        """Return the slot of a topic, a new one if need be, held once for the producer; OTHER is not held."""

    def waits(self, meter: "ClientMeter") -> None:
        """Keep the meter, which is told when a rate changes."""

    def waits_no_more(self, meter: "ClientMeter") -> None:
        """Forget the meter."""


class PausedReader(Protocol):
    """The connection of a client that is not read for want of tokens."""

    @property
    def network(self) -> Hashable:
        """Return the network of the client; None if nobody knows it."""

    def look_at_rate(self) -> None:
        """Look at the pause again: a rate has changed."""


class ClientMeter:
    """The producers of one connection (`protocol.producer_scanner.ProducerSink`).

    `produces`, `consumes`: a PRODUCER, a SUBSCRIBE was seen, or what may be one.
    """

    __slots__ = (
        "_books",
        "_dry",
        "_now",
        "_paused_since",
        "_reader",
        "_run",
        "_scanner",
        "_slots",
        "_table",
        "consumes",
        "produces",
    )

    def __init__(self, table: SlotTable, reader: PausedReader) -> None:
        self._table = table
        self._books = table.books
        self._reader = reader
        self._slots: dict[int, int] = {}
        # Slot, bytes and messages of SENDs that are not in the books yet.
        self._run = (OTHER, 0, 0)
        self._dry: set[int] = set()
        self._now = 0.0
        self._paused_since: float | None = None
        self._scanner = ProducerScanner(self)
        self.produces = self.consumes = False

    def scan(self, data: memoryview, count: int, now: float) -> bool:
        """Count the first `count` bytes of `data`; return whether a slot of theirs has no tokens left."""
        self._now = now
        if self._scanner.has_ended:
            self._add(OTHER, count, 0)
        else:
            self._scanner.scan(data, count)
        self._book()
        return bool(self._dry)

    def close(self) -> None:
        """Release all slots: the connection has ended."""
        self._forget_all()
        self._dry.clear()
        self._table.waits_no_more(self)

    def rates_changed(self) -> None:
        """Look at the pause again: a rate has changed."""
        self._reader.look_at_rate()

    @property
    def room(self) -> int:
        """Return how many bytes may be read that are surely of one frame; endless if frames cannot be told."""
        return self._scanner.room

    @property
    def between_frames(self) -> bool:
        """Return whether the last byte was the last of its frame, as far as frames can be told."""
        return self._scanner.has_ended or self._scanner.between_frames

    # --- the pause ----------------------------------------------------------------------------------

    @property
    def has_dry(self) -> bool:
        """Return whether a slot had no tokens left at the last look."""
        return bool(self._dry)

    def look(self, now: float) -> tuple[float, bool]:
        """Return until when the client is not read, `now` if it is; and whether a frame passes in spite of a pause.

        A frame passes after the longest pause, which then begins anew.
        """
        latest = now
        for slot in list(self._dry):
            ready_at = self._books.ready_at(slot, now)
            latest = max(latest, ready_at)
            if ready_at <= now:
                self._dry.discard(slot)
        if not self._dry:
            if self._paused_since is not None:
                self._paused_since = None
                self._table.waits_no_more(self)
            return now, False
        if self._paused_since is None:
            self._paused_since = now
            self._table.waits(self)
        longest = self._books.max_pause_millis / 1000
        forced = now >= self._paused_since + longest
        if forced:
            self._paused_since = now
        return min(latest, self._paused_since + longest), forced

    def count_forced(self) -> None:
        """Count a frame that passes because its pause was too long."""
        self._books.count_forced()

    # --- the sink of the scanner (producer_scanner.ProducerSink) -----------------------------------

    def send(self, producer: int | None, messages: int, frame_bytes: int) -> None:
        """Count a SEND; of an unknown producer, too."""
        self.produces = True
        slot, size, count = self._run
        # `get` of None finds none.
        of_producer = self._slots.get(producer, OTHER)  # type: ignore[arg-type]
        if of_producer == slot:
            self._run = (slot, size + frame_bytes, count + messages)
        else:
            self._add(of_producer, frame_bytes, messages)

    def producer(self, producer: int | None, topic: bytes | None) -> None:
        """Keep the slot of a producer."""
        self.produces = True
        self._book()
        if producer is None:
            # Any producer of the connection may be meant.
            self._forget_all()
            return
        self.closed(producer)
        if topic is not None and len(self._slots) < MOST_PRODUCERS:
            slot = self._table.slot_of(topic, self._reader.network)
            if slot != OTHER:
                self._slots[producer] = slot

    def closed(self, producer: int) -> None:
        """Release the slot of a producer."""
        slot = self._slots.pop(producer, None)
        if slot is not None:
            self._books.let_go(slot)

    def subscribed(self) -> None:
        """Record that the client consumes."""
        self.consumes = True

    def ended(self) -> None:
        """Count all that comes for one unknown producer: sizes made no sense."""
        self.produces = True
        self._forget_all()
        self._books.count_unreadable()

    def _add(self, slot: int, size: int, messages: int) -> None:
        if slot != self._run[0]:
            self._book()
            self._run = (slot, size, messages)
        else:
            _, before, count = self._run
            self._run = (slot, before + size, count + messages)

    def _book(self) -> None:
        slot, size, messages = self._run
        if not size:
            return
        self._run = (slot, 0, 0)
        if not self._books.debit(slot, size, messages, self._now) and len(self._dry) < MOST_DRY:
            self._dry.add(slot)

    def _forget_all(self) -> None:
        for slot in self._slots.values():
            self._books.let_go(slot)
        self._slots.clear()
