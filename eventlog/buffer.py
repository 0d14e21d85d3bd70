"""Queue of events between the event loop and the thread of a sink, bounded by bytes.

Rule: a single thread puts and a single thread takes, and neither ever waits for the other: each number has one writer,
and CPython guards both ends of a deque. An event that does not fit is dropped and counted, and the next event in the
queue reports the loss.

The maker of an event encodes it as JSON at once: encoding is much cheaper then, and the queue holds 1 KB of text
instead of a dictionary of 4 KB. The text is copied: orjson returns its text in an over-allocated buffer of 8 to 32 KB,
which no budget counts.

Every event gets its `seq` before any sink, also an event that a sink drops. So an event has the same number in the file
and in the topic, (proxy_id, boot_id, seq) identifies the event, and a gap in `seq` is a loss.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from eventlog.schema import SCHEMA_VERSION

__all__ = ["ENTRY_BYTES", "Encode", "EventBuffer", "NumberedEvent", "Stamp", "Tee"]

Encode = Callable[[Mapping[str, object]], bytes]
# An event without its stamp: its number, how many events the sink had lost just before it, and its JSON after the
# opening brace. A plain tuple, because making a named tuple would double the cost of an event here.
NumberedEvent = tuple[int, int, bytes]

# Memory of an event beside its text: bytes object, number, tuple, deque slot: 33 + 32 + 80 + 8 bytes, rounded up.
ENTRY_BYTES: Final = 192
# The taker is woken early when a quarter of the buffer is full.
WAKE_PART: Final = 4
# dropped_before is an int32.
MOST_DROPPED: Final = 2**31 - 1


class Stamp:
    """The fields that all events of a process have in common; `encode` returns JSON. Without a `cluster` it is null."""

    def __init__(self, proxy_id: str, boot_id: str, encode: Encode, cluster: str = "") -> None:
        self.proxy_id = proxy_id
        self.boot_id = boot_id
        common: dict[str, object] = {"schema_version": SCHEMA_VERSION, "proxy_id": proxy_id, "boot_id": boot_id}
        common["cluster"] = cluster or None
        # Without the closing brace.
        self._head = encode(common)[:-1]

    def line(self, event: NumberedEvent, lost: int = 0) -> bytes:
        """Return the whole event as a line of JSON; `lost` counts events that were lost after they left the buffer."""
        seq, dropped_before, rest = event
        dropped = min(dropped_before + lost, MOST_DROPPED) if dropped_before or lost else 0
        return b'%b,"seq":%d,"dropped_before":%d,%b\n' % (self._head, seq, dropped, rest)


class EventBuffer:
    """The events that a sink has not taken yet: at most `limit_bytes`, with `ENTRY_BYTES` for each event."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._wake_bytes = limit_bytes // WAKE_PART
        self._entries: deque[NumberedEvent] = deque()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._gap = 0
        self._closed = False
        # Locked while there is no news: its release wakes the taker, which locks it again.
        self._bell = threading.Lock()
        self._bell.acquire()
        self.dropped = 0

    # --- the event loop's side ----------------------------------------------------------------------

    def offer(self, seq: int, rest: bytes) -> None:
        """Store an event (its number, and its JSON after the opening brace), or drop it if there is no room."""
        size_bytes = len(rest) + ENTRY_BYTES
        pending = self._put_bytes - self._taken_bytes + size_bytes
        if self._closed or pending > self._limit_bytes:
            self.lose()
            return
        self._put_bytes += size_bytes
        self._entries.append((seq, self._gap, rest))
        self._gap = 0
        if pending >= self._wake_bytes:
            self.ring()

    def lose(self) -> None:
        """Count an event as dropped."""
        self._gap += 1
        self.dropped += 1

    def ring(self) -> None:
        """Wake the thread that takes events."""
        if self._bell.locked():
            self._bell.release()

    def close(self) -> None:
        """Refuse further events, and wake the thread that takes events."""
        self._closed = True
        self.ring()

    # --- the sink's side ----------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the buffer refuses further events."""
        return self._closed

    @property
    def pending_bytes(self) -> int:
        """Memory of the events that were not taken."""
        return self._put_bytes - self._taken_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, most: int) -> list[NumberedEvent]:
        """Remove and return the oldest events, at most `most`."""
        oldest = self._entries.popleft
        # No other thread takes, so the events counted by len() stay until they are taken here.
        taken = [oldest() for _ in range(min(most, len(self._entries)))]
        self._taken_bytes += sum(len(rest) for _, _, rest in taken) + ENTRY_BYTES * len(taken)
        return taken

    def wait(self, seconds: float) -> None:
        """Wait until the buffer fills up or closes, but no longer than `seconds`."""
        self._bell.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))


class Tee:
    """Numbers events, encodes them as JSON, and puts each into all buffers: `put` is an `eventlog.sink.EventSink`.

    An event that cannot be encoded counts as dropped in all buffers, and `failed` is called with the error.
    """

    def __init__(self, buffers: Sequence[EventBuffer], encode: Encode, failed: Callable[[Exception], None]) -> None:
        self._buffers = tuple(buffers)
        self._encode = encode
        self._failed = failed
        self.seq = 0

    def put(self, event: Mapping[str, object]) -> None:
        """Put an event into all buffers; never raise."""
        self.seq = seq = self.seq + 1
        try:
            # Cut the '{': the stamp comes before these fields. The copy also trims orjson's over-allocated buffer.
            rest = self._encode(event)[1:]
        except Exception as error:
            for buffer in self._buffers:
                buffer.lose()
            self._failed(error)
            return
        for buffer in self._buffers:
            buffer.offer(seq, rest)
