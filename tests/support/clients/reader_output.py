"""Own a client's output as the rules for readers see it (`proxy.requests.reader_shares`)."""

import asyncio
from collections.abc import Callable


class ReaderOutput:
    """An output with room for so many bytes; it keeps whom a PONG calls, and counts its PINGs."""

    def __init__(self, *, reads: bool = False, room: int = 0, busy: bool = False) -> None:
        self.reads = reads
        self.room = room
        self.expected_bytes = 0
        self.pings = 0
        # How often somebody waited until the client had taken its earlier answers.
        self.waited = 0
        self.callers: list[Callable[[], None]] = []
        self._busy = busy

    @property
    def busy(self) -> bool:
        return self._busy or self.expected_bytes > 0

    def has_room_for(self, size: int) -> bool:
        return size + self.expected_bytes <= self.room

    def call(self, answered: Callable[[], None]) -> None:
        self.pings += 1
        self.callers.append(answered)

    def uncall(self, answered: Callable[[], None]) -> None:
        if answered in self.callers:
            self.callers.remove(answered)

    def pong(self) -> None:
        """Answer the PING."""
        callers, self.callers = self.callers, []
        for answered in callers:
            answered()

    async def earlier_bodies(self) -> None:
        self.waited += 1
        await asyncio.sleep(0)
