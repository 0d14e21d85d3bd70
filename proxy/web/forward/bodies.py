"""The body of a client's request on its way to a broker, and the copy of it that a redirect needs.

Rules: a step is read from the client when the last has left for the broker; the copy is kept only as long as direct
memory for it is free at once, never waited for, and only up to `httpInputMaxReplayBufferSize`; a client that sends
nothing of it for too long is not waited for any longer.
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
_GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class NotReplayable(ProxyError):
    """A body that was sent already, and of which no copy is left."""


class ReplayCopy:
    """What was sent of a body so far, under direct permits; given up when there is no room for it."""

    def __init__(self, limit_bytes: int, direct: AsyncSemaphore, key: Hashable) -> None:
        self._limit_bytes = limit_bytes
        self._direct = direct
        self._key = key
        self._permits: list[Permit] = []
        self._held_bytes = 0
        self._bytes: bytearray | None = bytearray()

    @property
    def whole(self) -> bool:
        """Tell whether nothing is missing."""
        return self._bytes is not None

    def keep(self, piece: bytes) -> None:
        """Add what is being sent."""
        if self._bytes is None:
            return
        size = len(self._bytes) + len(piece)
        if size > self._limit_bytes or not self._book(size):
            self.give_up()
        else:
            self._bytes += piece

    def pieces(self, step_bytes: int) -> list[bytes]:
        """Give what was kept, in steps; empty also if it was given up."""
        kept = self._bytes or b""
        return [bytes(kept[at : at + step_bytes]) for at in range(0, len(kept), step_bytes)]

    def give_up(self) -> None:
        """Forget it, and give its memory back; a second call does nothing."""
        self._bytes = None
        for permit in self._permits:
            permit.release()
        self._permits.clear()

    def _book(self, size: int) -> bool:
        while self._held_bytes < size:
            # Half as much again: a growing bytearray has spare room, and is there twice while it moves.
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
    """The body of `request`, which may be begun anew as long as its copy is whole."""

    def __init__(
        self, request: "BaseRequest", copy: ReplayCopy, counters: WebCounters, uploads: Uploads, step_bytes: int
    ) -> None:
        self._request = request
        self._counters = counters
        self._step_bytes = step_bytes
        self._waits_to_go_on = request.headers.get("Expect", "").lower() == "100-continue"
        self._begun = False
        self._sender: asyncio.Task[Any] | None = None
        self._uploads = uploads
        self._upload = Upload()
        self.copy = copy
        self.refusal: HttpRefused | None = None

    @property
    def replayable(self) -> bool:
        """Tell whether it may be sent (again)."""
        return not self._begun or self.copy.whole

    def goes_to(self, server: Server) -> None:
        """Name the server whose connection it is about to hold."""
        self._upload.server = server

    async def send(self, writer: "AbstractStreamWriter") -> None:
        """Write all of it; raises NotReplayable, and HttpRefused (kept in `refusal`) if it comes too slowly."""
        self._sender = asyncio.current_task()
        if not self.replayable:
            raise NotReplayable("the connection to the broker broke, and the request cannot be sent again")
        # At once: a broker that redirects or refuses may do so before the body is on its way.
        writer.send_headers()
        for piece in self.copy.pieces(self._step_bytes) if self._begun else ():
            await self._write(writer, piece)
        self._begun = True
        await self._let_go_on()
        while piece := await self._read():
            self.copy.keep(piece)
            await self._write(writer, piece)

    async def stop(self) -> None:
        """End a sending that is under way: two of them would share out the client's bytes."""
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
            uploads.came(upload, clock(), len(piece))
        return piece

    async def _write(self, writer: "AbstractStreamWriter", piece: bytes) -> None:
        await writer.write(piece)
        await writer.drain()
        self._counters.bytes_to_brokers += len(piece)

    async def _let_go_on(self) -> None:
        """Ask a client that waits for its body, not before a broker is there to take it."""
        if self._waits_to_go_on:
            self._waits_to_go_on = False
            await self._request.writer.write(_GO_ON)
            # Those bytes are no part of the answer.
            self._request.writer.output_size = 0


class BodyPayload(Payload):
    """Hand a `RequestBody` to the client library."""

    def __init__(self, body: RequestBody, size: int | None) -> None:
        super().__init__(body)
        self._size = size
        self._body = body

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Refuse: it is never there as a whole."""
        raise TypeError("a streamed body cannot be decoded")

    async def write(self, writer: "AbstractStreamWriter") -> None:
        """Write all of it."""
        await self._body.send(writer)
