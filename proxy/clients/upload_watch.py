"""Watch the clients that send a large frame: a client that sends too slowly is closed while others wait for its memory.

Rules, as for clients that read (`proxy.net.write_watch`):
- Only the time in which the proxy waits for the client counts, not the time in which its frame waits for memory.
- A client is closed only if its frame holds memory that somebody waits for; slowest first and one at a time, until one
  of the waiters was served.
- While frames wait for the part of memory that only frames take, a frame that had memory for more of it and was too
  slow for half a second is refused, all such frames in one look, slowest first. The memory that they give back lets
  many more grow, and those are judged next: frames that hold a part and send nothing are gone in seconds.

The decisions have no I/O and no clock of their own; `run` calls them at their times.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from proxy.core.errors import DisconnectCause
from proxy.core.log import Logger
from proxy.net.upload_rate import UploadRate
from proxy.net.write_watch import TURNS_TO_SERVE, WriteLimits

KEY: Final = "topicListWriteMinBytesPerSecond"
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


class Uploader(Protocol):
    """A large frame that is arriving (`proxy.clients.large_frames.LargeFrames`)."""

    @property
    def rate(self) -> UploadRate:
        """Return how fast the frame has come."""

    @property
    def wanted(self) -> bool:
        """Return whether anybody waits for memory of the kind that the frame holds."""

    @property
    def crowded(self) -> bool:
        """Return whether other frames wait for the part of memory that only frames take."""

    @property
    def held_bytes(self) -> int:
        """Return how much of that memory the frame holds."""

    @property
    def name(self) -> str:
        """Return the client's name for the log."""

    @property
    def silent(self) -> bool:
        """Return whether the frame has memory for more bytes, the client is read, and nothing more was there."""

    def evict(self, cause: DisconnectCause) -> None:
        """End the connection, and release the frame's memory."""

    def give_way(self) -> None:
        """Refuse the frame, and release its memory."""


class _Judged(NamedTuple):
    """When a frame's time to be judged began: the seconds and bytes of its client until then; the looks since."""

    waited_seconds: float
    size: int
    looks: int


class UploadWatch:
    """All large frames that are arriving, and when the time of each to be judged began.

    `limits` returns the limits in force, the same as for slow readers; `served` the number of waiters that were granted
    memory.
    """

    def __init__(self, limits: Callable[[], WriteLimits], served: Callable[[], int], log: Logger) -> None:
        self._limits = limits
        self._served = served
        self._log = log
        self._uploaders: dict[Uploader, _Judged | None] = {}
        self._waits = asyncio.Event()

    def __len__(self) -> int:
        return len(self._uploaders)

    def add(self, uploader: Uploader) -> None:
        """Watch `uploader` from now on, until `discard`."""
        self._uploaders[uploader] = None

    def discard(self, uploader: Uploader) -> None:
        """Forget `uploader`: its frame is whole, refused, or its client is gone."""
        self._uploaders.pop(uploader, None)

    def wait_began(self) -> None:
        """Called when a frame begins to wait for memory."""
        self._waits.set()

    async def run(self, now: Callable[[], float]) -> None:
        """Look at the frames while some of them wait; end with the task only."""
        while True:
            await self._waits.wait()
            await asyncio.sleep(LOOK_SECONDS)
            await self.look(now())

    async def look(self, now: float) -> None:
        """Refuse the frames that get nothing while others wait; called every LOOK_SECONDS while frames wait."""
        least = self._limits().min_bytes_per_second
        slow: list[tuple[float, int, Uploader]] = []
        crowded = False
        for number, uploader in enumerate(list(self._uploaders), 1):
            # Some have ended while the loop had its turn.
            if uploader in self._uploaders:
                crowded = crowded or uploader.crowded
                rate = self._judged(uploader, now)
                if rate is not None and rate < least:
                    slow.append((rate, number, uploader))
            if not number % UPLOADS_A_TURN:
                await asyncio.sleep(0)
        if not crowded:
            self._waits.clear()
        for number, (_, _, uploader) in enumerate(sorted(slow), 1):
            if uploader in self._uploaders and uploader.crowded and uploader.silent:
                uploader.give_way()
            if not number % REFUSALS_A_TURN:
                await asyncio.sleep(0)

    def _judged(self, uploader: Uploader, now: float) -> float | None:
        """Return the bytes per second of a frame that others wait for, None before its time to be judged is over."""
        began, size, waited = self._uploaders[uploader], uploader.rate.size, uploader.rate.waited_seconds(now)
        if began is None or not (uploader.crowded and uploader.held_bytes and uploader.silent):
            # Bytes that came before a wait for memory say nothing of the client after it.
            self._uploaders[uploader] = _Judged(waited, size, 0)
            return None
        seconds = waited - began.waited_seconds
        if seconds < JUDGED_SECONDS or began.looks + 1 < LOOKS:
            self._uploaders[uploader] = began._replace(looks=began.looks + 1)
            return None
        self._uploaders[uploader] = _Judged(waited, size, 0)
        return (size - began.size) / seconds

    async def sweep(self, now: float) -> None:
        """Close as many slow clients as others need; called once a second."""
        least = self._limits().min_bytes_per_second
        if not least:
            return
        slow: list[tuple[float, int, Uploader]] = []
        for number, uploader in enumerate(list(self._uploaders), 1):
            # Some have ended while the loop had its turn.
            if uploader in self._uploaders and uploader.held_bytes and uploader.wanted and uploader.rate.awaited:
                rate = uploader.rate.rate(now)
                if rate is not None and rate < least:
                    slow.append((rate, number, uploader))
            if not number % UPLOADS_A_TURN:
                await asyncio.sleep(0)
        if slow:
            await self._make_room(sorted(slow))

    async def _make_room(self, slowest_first: list[tuple[float, int, Uploader]]) -> None:
        served, closed, held, client = self._served(), 0, 0, ""
        for _, _, uploader in slowest_first:
            if self._served() != served:
                break
            # The frame may have become whole, and the waiters may have left, since the first look.
            if uploader not in self._uploaders or not (uploader.held_bytes and uploader.wanted):
                continue
            closed, held, client = closed + 1, held + uploader.held_bytes, uploader.name
            self.discard(uploader)
            uploader.evict(DisconnectCause.SENDS_TOO_SLOWLY)
            for _ in range(TURNS_TO_SERVE):
                await asyncio.sleep(0)
        if closed:
            cause = str(DisconnectCause.SENDS_TOO_SLOWLY)
            self._log.warning(
                "client closed for sending too slowly",
                cause=cause,
                change=KEY,
                client=client,
                bytes=held,
                evictions=closed,
            )
