"""The way of events from a buffer into a store, in a thread of its own.

Rule: `Drain` decides and has no clock; what it is told the time of, it does then, and says when it is to be asked
again. What a store could not take stays in hand, at most `BLOCK_BYTES` of lines, and is tried again after a pause that
doubles; meanwhile nothing is taken from the buffer, which fills up and drops. Events are counted as written when the
store has said so, as lost when nobody will try again, or when the store says that what it had is gone: those count as
both. The next event that is written says how many are missing before it, also one that is in hand by then.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from eventlog.buffer import EventBuffer, NumberedEvent, Stamp
from eventlog.sink import SinkCounts

__all__ = ["BLOCK_BYTES", "Drain", "DrainThread", "Store", "StoreError"]

BLOCK_BYTES: Final = 256 * 1024
# How many events are taken before the event loop may have the interpreter again: about 0.1 ms.
SLICE: Final = 128
SLICE_PAUSE_SECONDS: Final = 0.0003
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

Report = Callable[[str], None]


class StoreError(Exception):
    """A store cannot take events now; the text says why, lower case.

    `lost_events` were written before, in front of all that is in hand, and are gone with what failed.
    """

    def __init__(self, message: str, lost_events: int = 0) -> None:
        super().__init__(message)
        self.lost_events = lost_events


class Store(Protocol):
    """Where a sink keeps events; only its thread calls it."""

    def open(self) -> None:
        """Do what is to be done before the first block; raises StoreError."""

    def write(self, lines: list[bytes], now: float) -> int:
        """Keep all lines, or none that it would not be right to write again; gives the bytes that it took.

        Raises StoreError.
        """

    def tick(self, now: float) -> None:
        """Do what time alone brings; raises StoreError."""

    def close(self) -> None:
        """Finish what was written; raises StoreError."""


def _step_aside() -> None:
    """Let the event loop have the interpreter: without a real pause this thread would take it back at once."""
    time.sleep(SLICE_PAUSE_SECONDS)


class Drain:
    """Takes events out of one buffer and writes them into one store."""

    def __init__(self, buffer: EventBuffer, stamp: Stamp, store: Store, flush_seconds: float, report: Report,
                 between_slices: Callable[[], None] = _step_aside) -> None:  # fmt: skip
        self.counts = SinkCounts()
        self._between_slices = between_slices
        self._buffer = buffer
        self._stamp = stamp
        self._store = store
        self._flush_seconds = flush_seconds
        self._report = report
        self._opened = False
        self._lines: list[bytes] = []
        self._bytes = 0
        # Events that went missing behind the buffer and in front of the next one to be taken.
        self._lost = 0
        # The first event in hand, and what it was told to have lost: it may have to say more.
        self._first: tuple[NumberedEvent, int] | None = None
        self._flush_at = 0.0
        self._retry_at = 0.0
        self._pause_seconds = 0.0

    @property
    def in_hand(self) -> int:
        """Give the number of events that have left the buffer and are not written."""
        return len(self._lines)

    def step(self, now: float) -> float:
        """Do what is due at `now` (seconds), and give the seconds until the next step."""
        if now < self._retry_at:
            return self._retry_at - now
        try:
            self._open()
            self._work(now)
        except StoreError as error:
            self._failed(error, now)
            return self._pause_seconds
        self._pause_seconds = 0.0
        return self._flush_at - now

    def finish(self, now: float) -> None:
        """Write all that is left and close the store; at the first failure the rest is lost."""
        try:
            self._finish(now)
        except StoreError as error:
            self._failed(error, now)
            if error.lost_events:
                self._finish_again(now)  # what is gone says nothing against a new file, and the rest tells of the gap
            self.give_up()

    def give_up(self) -> None:
        """Count all that is left as lost."""
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
        """Take events until a block is full or the buffer empty, and tell whether it is full."""
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
        self._tell_of_gap(error.lost_events)
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause_seconds))
        self._retry_at = now + self._pause_seconds
        self._report(str(error))

    def _tell_of_gap(self, lost_events: int) -> None:
        """Have the next event to be written say what is missing before it."""
        if self._first is None:
            self._lost += lost_events
        elif lost_events:
            event, lost = self._first
            self._first = (event, lost + lost_events)
            line = self._stamp.line(*self._first)
            self._bytes += len(line) - len(self._lines[0])
            self._lines[0] = line


class DrainThread:
    """Runs a drain until its buffer closes, then to its end; a thread that hangs is left behind."""

    def __init__(self, name: str, buffer: EventBuffer, drain: Drain, clock: Callable[[], float],
                 crashed: Callable[[Exception], None]) -> None:  # fmt: skip
        self._buffer = buffer
        self._drain = drain
        self._clock = clock
        self._crashed = crashed
        # Nobody waits for it at the end of the process: a disk or a broker that hangs must not hold that up.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the end, which the closing of the buffer begins; tell whether it came. Blocks."""
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
