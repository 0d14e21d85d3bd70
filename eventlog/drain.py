"""Writes events from a buffer into a store, in a thread of its own.

Rule: `Drain` has no clock: its caller passes the time and gets the time of the next step. Lines that a store could not
write stay in hand, at most `BLOCK_BYTES`, and are tried again after a pause that doubles, up to a quarter shorter at
random: the store may be one topic for many proxies. Meanwhile no events are taken
from the buffer, which fills up and drops. Events count as written when the store has confirmed them, and as lost when
they will not be tried again, or when the store reports that written events are gone; the latter count as both. The next
event that is written reports how many events are missing before it, also if that event is already in hand.
"""

import random
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from eventlog.buffer import EventBuffer, NumberedEvent, Stamp
from eventlog.sink import SinkCounts

__all__ = ["BLOCK_BYTES", "Drain", "DrainThread", "Store", "StoreError"]

BLOCK_BYTES: Final = 256 * 1024
# Events taken before the event loop gets the interpreter again: about 0.1 ms.
SLICE: Final = 128
SLICE_PAUSE_SECONDS: Final = 0.0003
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0
# The largest random part of a pause.
JITTER: Final = 0.25

Report = Callable[[str], None]


class StoreError(Exception):
    """A store cannot write events now; the text gives the reason in lower case.

    `lost_events` counts earlier events that were written and are now gone.
    """

    def __init__(self, message: str, lost_events: int = 0) -> None:
        super().__init__(message)
        self.lost_events = lost_events


class Store(Protocol):
    """The storage of a sink; only the sink's thread calls it."""

    def open(self) -> None:
        """Prepare for the first block; raise StoreError."""

    def write(self, lines: list[bytes], now: float) -> int:
        """Write all lines and return the bytes written.

        Raise StoreError only if writing the same lines again is right.
        """

    def tick(self, now: float) -> None:
        """Called at each flush interval, for work that depends on time alone; raise StoreError."""

    def close(self) -> None:
        """Finish the written events; raise StoreError."""


def _step_aside() -> None:
    """Pause for the event loop: without a real pause this thread would get the interpreter back at once."""
    time.sleep(SLICE_PAUSE_SECONDS)


class Drain:
    """Takes events out of a buffer and writes them into a store."""

    def __init__(self, buffer: EventBuffer, stamp: Stamp, store: Store, flush_seconds: float, report: Report,
                 between_slices: Callable[[], None] = _step_aside,
                 draw: Callable[[], float] = random.random) -> None:  # fmt: skip
        self.counts = SinkCounts()
        self._between_slices = between_slices
        self._draw = draw
        self._buffer = buffer
        self._stamp = stamp
        self._store = store
        self._flush_seconds = flush_seconds
        self._report = report
        self._opened = False
        self._lines: list[bytes] = []
        self._bytes = 0
        # Events lost after they left the buffer, and before the next event to be taken.
        self._lost = 0
        # The first event in hand and the loss that its line reports, which may have to grow.
        self._first: tuple[NumberedEvent, int] | None = None
        self._flush_at = 0.0
        self._retry_at = 0.0
        self._pause_seconds = 0.0

    @property
    def in_hand(self) -> int:
        """Number of events that have left the buffer and are not written."""
        return len(self._lines)

    def step(self, now: float) -> float:
        """Write the events that are due at `now` (seconds), and return the seconds until the next step."""
        if now < self._retry_at:
            return self._retry_at - now
        try:
            self._open()
            self._work(now)
        except StoreError as error:
            self._failed(error, now)
            return self._retry_at - now
        self._pause_seconds = 0.0
        return self._flush_at - now

    def finish(self, now: float) -> None:
        """Write the remaining events and close the store; after the first failure the rest is lost."""
        try:
            self._finish(now)
        except StoreError as error:
            self._failed(error, now)
            if error.lost_events:
                self._finish_again(now)  # a new file may succeed, and its events report the gap
            self.give_up()

    def give_up(self) -> None:
        """Count the remaining events as lost."""
        rest = self._buffer.take(len(self._buffer))
        self.counts.lost += len(self._lines) + len(rest)
        self._forget()

    def _finish(self, now: float) -> None:
        if self._lines or len(self._buffer):
            self._open()
        while self._fill():
            self._write(now)
        if self._lines:
            self._write(now)
        if self._opened:
            self._store.close()

    def _finish_again(self, now: float) -> None:
        try:
            self._finish(now)
        except StoreError as error:
            self._failed(error, now)

    def _open(self) -> None:
        if not self._opened:
            self._store.open()
            self._opened = True

    def _work(self, now: float) -> None:
        while self._fill():
            self._write(now)
        if now >= self._flush_at:
            self._flush_at = now + self._flush_seconds
            if self._lines:
                self._write(now)
            self._store.tick(now)

    def _fill(self) -> bool:
        """Take events until a block is full or the buffer empty; return whether the block is full."""
        while self._bytes < BLOCK_BYTES:
            taken = self._buffer.take(SLICE)
            if not taken:
                return False
            self._add(taken)
            if len(taken) == SLICE:
                self._between_slices()
        return True

    def _add(self, taken: list[NumberedEvent]) -> None:
        if not self._lines:
            self._first = (taken[0], self._lost)
        line = self._stamp.line
        lines = [line(taken[0], self._lost), *map(line, taken[1:])]
        self._lost = 0
        self._lines += lines
        self._bytes += sum(map(len, lines))

    def _write(self, now: float) -> None:
        lines = self._lines
        self.counts.bytes_written += self._store.write(lines, now)
        self.counts.written += len(lines)
        self._forget()

    def _forget(self) -> None:
        self._lines, self._bytes, self._first = [], 0, None

    def _failed(self, error: StoreError, now: float) -> None:
        self.counts.errors += 1
        self.counts.lost += error.lost_events
        self._report_gap(error.lost_events)
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause_seconds))
        self._retry_at = now + self._pause_seconds * (1 - JITTER * self._draw())
        self._report(str(error))

    def _report_gap(self, lost_events: int) -> None:
        """Make the next event to be written report the events missing before it."""
        if self._first is None:
            self._lost += lost_events
        elif lost_events:
            event, lost = self._first
            self._first = (event, lost + lost_events)
            line = self._stamp.line(*self._first)
            self._bytes += len(line) - len(self._lines[0])
            self._lines[0] = line


class DrainThread:
    """Runs a drain until its buffer closes, then finishes it; nothing waits for a thread that hangs."""

    def __init__(self, name: str, buffer: EventBuffer, drain: Drain, clock: Callable[[], float],
                 crashed: Callable[[Exception], None]) -> None:  # fmt: skip
        self._buffer = buffer
        self._drain = drain
        self._clock = clock
        self._crashed = crashed
        # A daemon: a disk or a broker that hangs must not delay the exit of the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Block until the thread has ended, which needs a closed buffer; return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._buffer.closed:
                self._buffer.wait(self._drain.step(self._clock()))
            self._drain.finish(self._clock())
        except Exception as error:
            self._buffer.close()
            self._drain.give_up()
            self._crashed(error)
