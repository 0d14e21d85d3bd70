"""Watch the large frames that arrive: one whose bytes do not come is refused while others wait for its memory.

Rules:
- Only the time in which the proxy waits for the client counts, not the time in which its frame waits for memory.
- A frame that had memory for more of it and was below the least rate for half a second is refused, all such frames in
  one look, slowest first. The memory that they give back lets many more grow, and those are judged next: frames that
  hold a part and send nothing are gone in seconds.

The decisions have no I/O and no clock of their own; `run` calls them at their times.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from proxy.clients.large_frames import LargeFrames

# Uploads looked at in one iteration of the loop: arithmetic only, about 1 ms together.
UPLOADS_A_TURN: Final = 1000
# Refusals in one iteration of the loop: an answer, a log line's books and the grants that follow, 20 us each.
REFUSALS_A_TURN: Final = 100
# While frames wait, the others are looked at so often, and judged by so much time in which their bytes were awaited. A
# sender has filled its window by the time the proxy reads on: only a client that sends nothing more is late by this.
LOOK_SECONDS: Final = 0.25
JUDGED_SECONDS: Final = 0.5
# In each look's time the loop hears every socket once, however long the loop takes.
LOOKS: Final = 2


class _Judged(NamedTuple):
    """When a frame's time to be judged began: the seconds and bytes of its client until then; the looks since."""

    waited_seconds: float
    size: int
    looks: int


class UploadWatch:
    """All large frames that are arriving, and when the time of each to be judged began.

    `least` returns the bytes per second in force, the same as for slow readers.
    """

    def __init__(self, least: Callable[[], float]) -> None:
        self._least = least
        self._frames: dict[LargeFrames, _Judged | None] = {}
        self._waits = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: "LargeFrames") -> None:
        """Watch `frame` from now on, until `discard`."""
        self._frames[frame] = None

    def discard(self, frame: "LargeFrames") -> None:
        """Forget `frame`: it is whole, refused, or its client is gone."""
        self._frames.pop(frame, None)

    def wait_began(self) -> None:
        """Called when a frame stands in line for memory, or is about to in the same step of the loop."""
        self._waits.set()

    async def run(self, now: Callable[[], float]) -> None:
        """Look at the frames while some of them wait; end with the task only."""
        while True:
            await self._waits.wait()
            await asyncio.sleep(LOOK_SECONDS)
            await self.look(now())

    async def look(self, now: float) -> None:
        """Refuse the frames that get nothing while others wait; called every LOOK_SECONDS while frames wait."""
        # Who begins to wait while this looks is looked at next.
        self._waits.clear()
        least = self._least()
        slow: list[tuple[float, int, LargeFrames]] = []
        crowded = False
        for number, frame in enumerate(list(self._frames), 1):
            # Some have ended while the loop had its turn.
            if frame in self._frames:
                crowded = crowded or frame.wanted
                rate = self._judged(frame, now)
                if rate is not None and rate < least:
                    slow.append((rate, number, frame))
            if not number % UPLOADS_A_TURN:
                await asyncio.sleep(0)
        if crowded:
            self._waits.set()
        for number, (_, _, frame) in enumerate(sorted(slow), 1):
            if frame in self._frames and frame.wanted and frame.silent:
                frame.give_way()
            if not number % REFUSALS_A_TURN:
                await asyncio.sleep(0)

    def _judged(self, frame: "LargeFrames", now: float) -> float | None:
        """Return the bytes per second of a frame that others wait for; None before its time to be judged is over."""
        began, size, waited = self._frames[frame], frame.rate.size, frame.rate.waited_seconds(now)
        if began is None or not (frame.wanted and frame.held_bytes and frame.silent):
            # Bytes that came before a wait for memory say nothing of the client after it.
            self._frames[frame] = _Judged(waited, size, 0)
            return None
        seconds = waited - began.waited_seconds
        if seconds < JUDGED_SECONDS or began.looks + 1 < LOOKS:
            self._frames[frame] = began._replace(looks=began.looks + 1)
            return None
        self._frames[frame] = _Judged(waited, size, 0)
        return (size - began.size) / seconds
