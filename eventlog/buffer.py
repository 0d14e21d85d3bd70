"""Events on their way from the event loop to the thread of a sink, bounded by bytes.

Rule: one thread puts and one takes, and neither ever waits for the other: each number has one writer, and the rest is a
deque, whose ends CPython guards. What does not fit is dropped, counted, and said in the next event that gets in.

Events become JSON before they get here, by whoever has just made them: encoding takes a fraction of the time then, and
an event of 1 KB is kept instead of a dictionary of 4 KB. What is kept is a copy: a fast encoder gives out its text in
all the memory that it took for it, orjson 8 to 32 KB, which nobody has counted and no cache holds.

`seq` is given to every event before any sink sees it, those included that a sink drops: an event has the same number in
the file and in the topic, so that (proxy_id, boot_id, seq) names it, and a gap in `seq` is a loss.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from eventlog.schema import SCHEMA_VERSION

__all__ = ["ENTRY_BYTES", "Encode", "EventBuffer", "NumberedEvent", "Stamp", "Tee"]

Encode = Callable[[Mapping[str, object]], bytes]
# An event without its stamp: its number, how many the sink had lost just before it, and its JSON behind the opening
# brace. A plain tuple: one with names costs as much to make as all the rest that is done for it here.
NumberedEvent = tuple[int, int, bytes]

# The object around the text, its number, and its place here: 33 + 32 + 80 + 8 bytes, rounded up.
ENTRY_BYTES: Final = 192
# The taker is woken before its time when the buffer is that full.
WAKE_PART: Final = 4
# dropped_before is an int32.
MOST_DROPPED: Final = 2**31 - 1


class Stamp:
    """What all events of one process have in common, put before the rest of each; `encode` makes JSON of it."""

    def __init__(self, proxy_id: str, boot_id: str, encode: Encode) -> None:
        self.proxy_id = proxy_id
        self.boot_id = boot_id
        common = {"schema_version": SCHEMA_VERSION, "proxy_id": proxy_id, "boot_id": boot_id}
        # Without the closing brace.
        self._head = encode(common)[:-1]

    def line(self, event: NumberedEvent, lost: int = 0) -> bytes:
        """Give the whole event as one line of JSON; `lost` are events that went missing behind the buffer."""
        seq, dropped_before, rest = event
        dropped = min(dropped_before + lost, MOST_DROPPED) if dropped_before or lost else 0
        return b'%b,"seq":%d,"dropped_before":%d,%b\n' % (self._head, seq, dropped, rest)


class EventBuffer:
    """What one sink has not taken yet: `limit_bytes` at most, `ENTRY_BYTES` for each event included."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._wake_bytes = limit_bytes // WAKE_PART
        self._entries: deque[NumberedEvent] = deque()
        self._put_bytes = 0
        self._taken_bytes = 0
        self._gap = 0
        self._closed = False
        # Locked while there is nothing to tell: who waits for it is woken by its release, and locks it again.
        self._bell = threading.Lock()
        self._bell.acquire()
        self.dropped = 0

    # --- the event loop's side ----------------------------------------------------------------------

    def offer(self, seq: int, rest: bytes) -> None:
        """Take an event's number and its JSON behind the opening brace, or drop it if there is no room."""
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
        """Count an event that this sink does not get."""
        self._gap += 1
        self.dropped += 1

    def ring(self) -> None:
        """Wake the taker."""
        if self._bell.locked():
            self._bell.release()

    def close(self) -> None:
        """Let nothing in any more, and wake the taker."""
        self._closed = True
        self.ring()

    # --- the sink's side ----------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Tell whether nothing comes any more."""
        return self._closed

    @property
    def pending_bytes(self) -> int:
        """Give the memory of what was not taken."""
        return self._put_bytes - self._taken_bytes

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, most: int) -> list[NumberedEvent]:
        """Give the oldest events, `most` of them at most."""
        oldest = self._entries.popleft
        # Nobody else takes: those that are there now are there to be taken.
        taken = [oldest() for _ in range(min(most, len(self._entries)))]
        self._taken_bytes += sum(len(rest) for _, _, rest in taken) + ENTRY_BYTES * len(taken)
        return taken

    def wait(self, seconds: float) -> None:
        """Wait until the buffer fills up or closes, but no longer than `seconds`."""
        self._bell.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))


class Tee:
    """Numbers events, makes JSON of them, and hands each to all buffers (`eventlog.sink.EventSink`).

    One that is no JSON is counted as dropped by all, and `failed` is told why.
    """

    def __init__(self, buffers: Sequence[EventBuffer], encode: Encode, failed: Callable[[Exception], None]) -> None:
        self._buffers = tuple(buffers)
        self._encode = encode
        self._failed = failed
        self.seq = 0

    def put(self, event: Mapping[str, object]) -> None:
        """Take one event, whatever is wrong with it."""
        self.seq = seq = self.seq + 1
        try:
            # Behind the brace: what is kept is a copy of its own size.
            rest = self._encode(event)[1:]
        except Exception as error:
            for buffer in self._buffers:
                buffer.lose()
            self._failed(error)
            return
        for buffer in self._buffers:
            buffer.offer(seq, rest)
