"""Stream the body of a client's request to a broker, and keep the copy of it that a redirect needs.

Rules: the next step is read from the client when the last has left for the broker. The copy is kept only while direct
permits for it are granted at once, and only up to `httpInputMaxReplayBufferSize`. The wait for a client that sends
nothing has a time-out.
"""

import asyncio
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from aiohttp.payload import Payload

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.errors import ProxyError
from proxy.web.forward.uploads import Server, Upload, Uploads
from proxy.web.http.counters import WebCounters
from proxy.web.http.errors import HttpRefused

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.web import BaseRequest

STEP_BYTES: Final = 64 * 1024
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class NotReplayable(ProxyError):
    """A body cannot be sent again: its copy was dropped."""


class ReplayCopy:
    """The sent part of a body, under direct permits; dropped when no permit is free or the limit is reached."""

    def __init__(self, limit_bytes: int, direct: AsyncSemaphore, key: Hashable) -> None:
        self._limit_bytes = limit_bytes
        self._direct = direct
        self._key = key
        self._permits: list[Permit] = []
        self._held_bytes = 0
        self._bytes: bytearray | None = bytearray()

    @property
    def whole(self) -> bool:
        """Return whether the copy has every byte that was sent."""
        return self._bytes is not None

    def keep(self, piece: bytes) -> None:
        """Append a piece that is being sent; drop the copy if there is no memory for it."""
        if self._bytes is None:
            return
        size = len(self._bytes) + len(piece)
        if size > self._limit_bytes or not self._acquire(size):
            self.give_up()
        else:
            self._bytes += piece

    def pieces(self, step_bytes: int) -> list[bytes]:
        """Return the copy in steps; empty if the copy was dropped."""
        kept = self._bytes or b""
        return [bytes(kept[at : at + step_bytes]) for at in range(0, len(kept), step_bytes)]

    def give_up(self) -> None:
        """Drop the copy and release its permits; a second call does nothing."""
        self._bytes = None
        for permit in self._permits:
            permit.release()
        self._permits.clear()

    def _acquire(self, size: int) -> bool:
        while self._held_bytes < size:
            # Acquire half as much again: a growing bytearray has spare room, and exists twice while it moves.
            step = min(STEP_BYTES, self._limit_bytes)
            try:
                permit = self._direct.try_acquire(step * 3 // 2, key=self._key)
            except PermitAcquireError:
                return False
            if permit is None:
                return False
            self._permits.append(permit)
            self._held_bytes += step
        return True


class RequestBody:
    """The body of `request`, which can be sent again while its copy is whole."""

    def __init__(
        self, request: "BaseRequest", copy: ReplayCopy, counters: WebCounters, uploads: Uploads, step_bytes: int
    ) -> None:
        self._request = request
        self._counters = counters
        self._step_bytes = step_bytes
        self._expects_continue = request.headers.get("Expect", "").lower() == "100-continue"
        self._begun = False
        self._sender: asyncio.Task[Any] | None = None
        self._uploads = uploads
        self._upload = Upload()
        self.copy = copy
        self.refusal: HttpRefused | None = None

    @property
    def replayable(self) -> bool:
        """Return whether the body can be sent, or sent again."""
        return not self._begun or self.copy.whole

    def goes_to(self, server: Server) -> None:
        """Set the server whose connection the upload will hold."""
        self._upload.server = server

    async def send(self, writer: "AbstractStreamWriter") -> None:
        """Write the whole body; raises NotReplayable, or HttpRefused (kept in `refusal`) if the client is too slow."""
        self._sender = asyncio.current_task()
        if not self.replayable:
            raise NotReplayable("the connection to the broker broke, and the request cannot be sent again")
        # Send the headers at once: a broker may redirect or refuse before it gets the body.
        writer.send_headers()
        for piece in self.copy.pieces(self._step_bytes) if self._begun else ():
            await self._write(writer, piece)
        self._begun = True
        await self._send_continue()
        while piece := await self._read():
            self.copy.keep(piece)
            await self._write(writer, piece)

    async def stop(self) -> None:
        """Cancel the task that sends the body: two tasks would each get a part of the client's bytes."""
        sender, self._sender = self._sender, None
        if sender is not None and not sender.done():
            sender.cancel()
            await asyncio.wait([sender])

    async def _read(self) -> bytes:
        clock, upload, uploads = asyncio.get_running_loop().time, self._upload, self._uploads
        piece = b""
        try:
            async with asyncio.timeout(uploads.stall_seconds) as patience:
                uploads.wait(upload, clock(), lambda: patience.reschedule(clock()))
                piece = await self._request.content.read(self._step_bytes)
        except TimeoutError as error:
            self.refusal = upload.refusal
            raise self.refusal from error
        finally:
            uploads.received(upload, clock(), len(piece))
        return piece

    async def _write(self, writer: "AbstractStreamWriter", piece: bytes) -> None:
        await writer.write(piece)
        await writer.drain()
        self._counters.bytes_to_brokers += len(piece)

    async def _send_continue(self) -> None:
        """Send 100 Continue to a client that asked for it, now that a broker can take the body."""
        if self._expects_continue:
            self._expects_continue = False
            await self._request.writer.write(_CONTINUE)
            # aiohttp counts these bytes as part of the answer otherwise.
            self._request.writer.output_size = 0


class BodyPayload(Payload):
    """Passes a `RequestBody` to aiohttp's client."""

    def __init__(self, body: RequestBody, size: int | None) -> None:
        super().__init__(body)
        self._size = size
        self._body = body

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: a streamed body is never in memory as a whole."""
        raise TypeError("a streamed body cannot be decoded")

    async def write(self, writer: "AbstractStreamWriter") -> None:
        """Send the body with `writer`."""
        await self._body.send(writer)
