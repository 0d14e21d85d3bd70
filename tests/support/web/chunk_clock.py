"""A clock for the loop's budget that goes on by what chunks of HTTP bodies cost, and counts what an iteration does."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from aiohttp import StreamReader

from proxy.core.loop_budget import LoopBudget

CHUNK: Final = b"1\r\nX\r\n"
# About what they cost on a machine of 2026.
PARSE_SECONDS: Final = 0.0000002
READ_SECONDS: Final = 0.0000005


class ChunkClock:
    """The time that chunks have taken, and the most of it in an iteration of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.chunks = 0
        self.longest = 0.0
        self._began = 0.0
        self._replace(monkeypatch, "end_http_chunk_receiving", PARSE_SECONDS)
        self._replace(monkeypatch, "_read_nowait_chunk", READ_SECONDS)

    def _replace(self, monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
        usual = getattr(StreamReader, name)

        def timed(reader: StreamReader, *args: Any) -> Any:
            self.now += seconds
            self.chunks += 1
            return usual(reader, *args)

        monkeypatch.setattr(StreamReader, name, timed)

    def budget(self) -> LoopBudget:
        """Make a budget whose clock this is."""
        return LoopBudget(asyncio.get_running_loop(), lambda: self.now)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at each iteration."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            watching.cancel()
            self._ended()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._ended()

    def _ended(self) -> None:
        self.longest, self._began = max(self.longest, self.now - self._began), self.now
