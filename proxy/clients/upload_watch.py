"""Watch the clients that send a large frame: a client that sends too slowly is closed while others wait for its memory.

Rules, as for clients that read (`proxy.net.write_watch`):
- Only the time in which the proxy waits for the client counts, not the time in which its frame waits for memory.
- A client is closed only if its frame holds memory that somebody waits for; slowest first and one at a time, until one
  of the waiters was served.

The decisions have no I/O and no clock of their own.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from proxy.core.errors import DisconnectCause
from proxy.core.log import Logger
from proxy.net.upload_rate import UploadRate
from proxy.net.write_watch import TURNS_TO_SERVE, Memory, WriteLimits

KEY: Final = "topicListWriteMinBytesPerSecond"
# Uploads looked at in one iteration of the loop: arithmetic only, about 1 ms together.
UPLOADS_A_TURN: Final = 1000


class Uploader(Protocol):
    """A large frame that is arriving (`proxy.clients.large_frames.LargeFrames`)."""

    @property
    def rate(self) -> UploadRate:
        """Return how fast the frame has come."""

    @property
    def memory(self) -> Memory:
        """Return the memory that the frame takes."""

    @property
    def held_bytes(self) -> int:
        """Return how much of that memory the frame holds."""

    @property
    def name(self) -> str:
        """Return the client's name for the log."""

    def evict(self, cause: DisconnectCause) -> None:
        """End the connection, and release the frame's memory."""


class UploadWatch:
    """All large frames that are arriving. `limits` returns the limits in force, the same as for slow readers.

    `served` returns the number of waiters that were granted memory.
    """

    def __init__(self, limits: Callable[[], WriteLimits], served: Callable[[], int], log: Logger) -> None:
        self._limits = limits
        self._served = served
        self._log = log
        self._uploaders: dict[Uploader, None] = {}

    def __len__(self) -> int:
        return len(self._uploaders)

    def add(self, uploader: Uploader) -> None:
        """Watch `uploader` from now on, until `discard`."""
        self._uploaders[uploader] = None

    def discard(self, uploader: Uploader) -> None:
        """Forget `uploader`: its frame is whole, refused, or its client is gone."""
        self._uploaders.pop(uploader, None)

    async def sweep(self, now: float) -> None:
        """Close as many slow clients as others need; called once a second."""
        least = self._limits().min_bytes_per_second
        if not least:
            return
        slow: list[tuple[float, int, Uploader]] = []
        for number, uploader in enumerate(list(self._uploaders), 1):
            # Some have ended while the loop had its turn.
            if uploader in self._uploaders and uploader.held_bytes and uploader.memory.short and uploader.rate.awaited:
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
            if uploader not in self._uploaders or not (uploader.held_bytes and uploader.memory.short):
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
