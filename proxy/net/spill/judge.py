"""Judge which lists are held up by slow readers: numbers only, no I/O and no clock of its own.

Rules:
- A reader is judged by the bytes its socket took in a window of 250 ms. A reader is slow if these are less than a
  quick reader's share, and the socket was full in the end: a reader that waits for the proxy is not slow.
- A quick reader's share is half of what readers took on average in the window, within bounds: where all are slow, all
  are below the least share, and where the machine is busy, nobody has to take more than the most.
- A list is slow if every reader of it is slow; a list that no reader has begun waits for its client. A list behind a
  list on disk is slow from the beginning: its client has been judged.
- Time in which the proxy stood still does not count.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from proxy.net.spill.body import ListReader, ReaderWindow, SpillableBody

if TYPE_CHECKING:
    from proxy.net.spill.space import SpillSpace

WINDOW_SECONDS: Final = 0.25
SWEEP_SECONDS: Final = 0.125
# A longer time between two sweeps is the proxy's own delay.
LONGEST_STEP_SECONDS: Final = 0.1875
LEAST_SHARE_BYTES: Final = 64 * 1024
MOST_SHARE_BYTES: Final = 256 * 1024
# Less memory is not worth the books and the descriptor. A smaller rest may hold more memory than this: all of its slab.
LEAST_REST_BYTES: Final = 16 * 1024


class SpillJudge:
    """Look at all lists in memory, eight times a second."""

    def __init__(self) -> None:
        self._looked_at: float | None = None
        self._time = 0.0

    def look(self, now: float, lists: Iterable[SpillableBody]) -> list[SpillableBody]:
        """Return the lists whose readers were all slow in their last window; begin new windows where one has ended."""
        if self._looked_at is not None:
            self._time += min(now - self._looked_at, LONGEST_STEP_SECONDS)
        self._looked_at = now
        judged: list[tuple[SpillableBody, ReaderWindow]] = []
        slow: list[SpillableBody] = []
        readers = taken = 0
        for each in lists:
            window = each.window
            if window is None:
                each.window = ReaderWindow(self._time, each.readers)
            elif self._time - window.began >= WINDOW_SECONDS:
                judged.append((each, window))
                readers += max(1, len(each.readers))
                taken += sum(_taken(window, reader) for reader in each.readers)
            elif window.slow:
                slow.append(each)
        share = quick_share(readers, taken)
        for each, window in judged:
            is_slow = self._is_slow(each, window, share)
            each.window = ReaderWindow(self._time, each.readers, slow=is_slow)
            if is_slow:
                slow.append(each)
        return slow

    def slow_window(self) -> ReaderWindow:
        """Return the window of a list whose client is known to be slow: the list may move at the next look."""
        return ReaderWindow(self._time, (), slow=True)

    def _is_slow(self, judged: SpillableBody, window: ReaderWindow, share: int) -> bool:
        if not judged.rest_bytes or max(judged.rest_bytes, judged.memory_bytes) < LEAST_REST_BYTES:
            return False
        return all(not reader.queued and _taken(window, reader) < share for reader in judged.readers)


def _taken(window: ReaderWindow, reader: ListReader) -> int:
    """Return the bytes that `reader` took since; a reader that began since has not had a whole window."""
    before = window.positions.get(reader)
    return MOST_SHARE_BYTES if before is None else reader.position - before


def quick_share(readers: int, taken: int) -> int:
    """Return the bytes that a quick reader takes in a window, if that many readers took `taken` together."""
    return min(MOST_SHARE_BYTES, max(LEAST_SHARE_BYTES, taken // max(1, readers) // 2))


def in_order(slow: Iterable[SpillableBody], space: "SpillSpace") -> list[SpillableBody]:
    """Return slow lists in the order in which they move: keys with least on the disk first, then large ones."""
    return sorted(slow, key=lambda each: (space.held_by(each.key), -each.rest_bytes))
