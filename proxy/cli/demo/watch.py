"""Weigh the proxy while a storm goes on, and show how far it is.

Rule: memory is sampled every 50 ms; the kernel's own high-water mark counts too, if it moved, so that no short peak
between two samples is missed. Nothing here changes the storm.
"""

import asyncio
import sys
from collections.abc import Awaitable
from typing import Final

from proxy.cli.demo.children import Child
from proxy.cli.demo.storm import Storm
from proxy.cli.demo.table import progress

SAMPLE_SECONDS: Final = 0.05
PROGRESS_SECONDS: Final = 0.5
_ERASE_LINE: Final = "\r\x1b[K"


class Watch:
    """Watch one child from now on: `idle_bytes` is its memory at this moment."""

    def __init__(self, storm: Storm, child: Child) -> None:
        self._storm = storm
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._high_water_before = child.peak_resident_bytes()
        self._highest_sample = 0
        self.idle_bytes = child.resident_bytes()
        self.storm_seconds = 0.0

    @property
    def peak_bytes(self) -> int:
        """Give the most memory that was seen."""
        return max(self._highest_sample, self.idle_bytes)

    async def during(self, work: Awaitable[None]) -> None:
        """Sample until `work` is done, and note how long it took."""
        self._began = self._loop.time()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._run())
            await work
            watching.cancel()
        self.storm_seconds = self._loop.time() - self._began
        self._sample()
        high_water = self._child.peak_resident_bytes()
        if high_water > self._high_water_before:
            self._highest_sample = max(self._highest_sample, high_water)
        self._show(last=True)

    async def _run(self) -> None:
        shown = self._began
        while True:
            self._sample()
            if self._loop.time() - shown >= PROGRESS_SECONDS:
                shown = self._loop.time()
                self._show()
            await asyncio.sleep(SAMPLE_SECONDS)

    def _sample(self) -> None:
        self._highest_sample = max(self._highest_sample, self._child.resident_bytes())

    def _show(self, *, last: bool = False) -> None:
        line = progress(self._storm.tally, self._loop.time() - self._began, self._child.resident_bytes())
        if sys.stdout.isatty():
            print(_ERASE_LINE + line, end="\n" if last else "", flush=True)
        else:
            print(line, flush=True)
