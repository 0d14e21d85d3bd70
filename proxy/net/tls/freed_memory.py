"""Return the memory of many half-done handshakes to the system.

OpenSSL allocates some 45 KiB for a handshake in many small pieces. The C library keeps them when they are freed,
because a few pieces that are in use lie between them. `malloc_trim` returns whole free pages; it takes 8 ms for 80 MiB,
so it runs in a thread and rarely.
"""

import asyncio
from contextlib import suppress
from typing import Final

from proxy.core.process_memory import return_free_pages
from proxy.core.tasks import TaskScope
from proxy.core.threads import NoThread, in_thread

# Fewer handshakes leave less than 6 MiB.
CROWD: Final = 128
# The wait for the end of the crowd, which is also the least time between two calls.
CALM_SECONDS: Final = 5.0
_TRIM_SECONDS: Final = 60.0


class FreedMemory:
    """Return free memory once a crowd of handshakes is over."""

    __slots__ = ("_loop", "_most", "_now", "_planned", "_scope")

    def __init__(self, loop: asyncio.AbstractEventLoop, scope: TaskScope) -> None:
        self._loop = loop
        self._scope = scope
        self._most = self._now = 0
        self._planned = False

    def note(self, handshakes: int) -> None:
        """Take notice of the number of handshakes under way."""
        self._now = handshakes
        if handshakes > self._most:
            self._most = handshakes
        if not self._planned and self._over:
            self._planned = True
            self._loop.call_later(CALM_SECONDS, self._due)

    @property
    def _over(self) -> bool:
        return self._most >= CROWD and 2 * self._now <= self._most

    def _due(self) -> None:
        self._planned = False
        if self._over:
            self._most = self._now
            self._scope.start(self._trim())

    async def _trim(self) -> None:
        # A trim that finds no thread is due again after the next crowd.
        with suppress(NoThread):
            await in_thread(return_free_pages, "memory", _TRIM_SECONDS)
