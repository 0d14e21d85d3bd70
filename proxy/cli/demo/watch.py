"""Measure the proxy's memory during a storm, and print the progress.

Rule: memory is sampled every 50 ms. The kernel's high-water mark counts as well, if the storm raised it, so that a
short peak between two samples is not missed.
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
    """Measures a child process from its creation on, when its memory is `idle_bytes`."""

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
        """The most resident memory seen so far."""
        return max(self._highest_sample, self.idle_bytes)

    async def during(self, work: Awaitable[None]) -> None:
        """Sample memory while `work` runs, and set `storm_seconds` to its duration."""
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
