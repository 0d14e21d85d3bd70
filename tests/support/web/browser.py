"""Own a headless browser that is driven by its debugging protocol: sizes of a screen, colour schemes, what is where.

Rule: the browser reaches 127.0.0.1 and no other host, and ends with the block.
"""

import asyncio
import itertools
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.clients.async_client import LOOPBACK, eventually
from tests.support.patience import in_time, patient
from tests.support.tools import tool


class Tab:
    """A page in the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)

    async def call(self, method: str, **given: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        answer = await self._answer(method, **given)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    async def _answer(self, method: str, **given: object) -> dict[str, Any]:
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": given})
        while True:
            # Events come in between.
            answer: dict[str, Any] = await self._socket.receive_json(timeout=patient(60))
            if answer.get("id") == number:
                return answer

    async def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, awaited if that is a promise."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until an expression is true of the page, whatever was there before."""
        async with in_time(60):
            while True:
                found = await self._answer("Runtime.evaluate", expression=f"Boolean({condition})", returnByValue=True)
                # A page that another takes the place of has no values any more.
                if found.get("result", {}).get("result", {}).get("value") is True:
                    return

    async def screen(self, width: int, height: int, scheme: str) -> None:
        """Have a screen of this size, in pixels, without scroll bars, whose owner prefers these colours."""
        await self.call("Emulation.setScrollbarsHidden", hidden=True)
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[Tab]:
    """Have a browser at an address until the block ends; `profile` is a directory that is not there yet."""
    command = [
        tool("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
        f"--user-data-dir={profile}", "--remote-debugging-port=0",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank",
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
    try:
        where = profile / "DevToolsActivePort"
        await eventually(lambda: where.exists() and "\n" in where.read_text(), "a browser", patient(60))
        port = where.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            # Browsers take only this method for it.
            async with session.put(f"http://{LOOPBACK}:{port}/json/new?{url}") as answer:
                opened = await answer.json(content_type=None)
            async with session.ws_connect(opened["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Tab(socket)
    finally:
        process.terminate()
        await process.wait()
