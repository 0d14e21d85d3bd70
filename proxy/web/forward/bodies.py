"""Stream the body of a client's request to a broker, and keep the copy of it that a redirect needs.

Rules: the next step is read from the client when the last has left for the broker, in the turn of its key. The wait for
a client that sends nothing has a time-out. A copy that is dropped while it is sent again leaves the redirect to the
client.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp.payload import Payload

from proxy.core.counters import Counters
from proxy.core.errors import ProxyError
from proxy.web.forward.answer_writer import BODY_BYTES
from proxy.web.forward.broker_client import hear
from proxy.web.forward.replay_copies import ReplayCopy
from proxy.web.forward.uploads import Upload
from proxy.web.http.errors import HttpRefused

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import StreamWriter
    from aiohttp.web import BaseRequest

# A step takes about this long, at most: reading what has come (`connection.py` bounds the chunks), and a write.
STEP_SECONDS: Final = 0.0003
_DROPPED: Final = "the memory for the copy of the request's body is needed for others: send the request again"
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class NotReplayable(ProxyError):
    """A body cannot be sent again: its copy was dropped."""


class RequestBody:
    """The body of `request`, which can be sent again while its copy is whole; `turn` waits for the turn of a step."""

    def __init__(
        self,
        request: "BaseRequest",
        copy: ReplayCopy,
        counters: Counters,
        upload: Upload,
        step_bytes: int,
        turn: Callable[[], Awaitable[None]],
    ) -> None:
        self._request = request
        self._counters = counters
        self._step_bytes = step_bytes
        self._expects_continue = request.headers.get("Expect", "").lower() == "100-continue"
        self._begun = False
        self._sender: asyncio.Task[Any] | None = None
        self._upload = upload
        self._turn = turn
        self._redirect: HttpRefused | None = None
        self.copy = copy
        self.refusal: HttpRefused | None = None

    @property
    def replayable(self) -> bool:
        """Return whether the body can be sent, or sent again."""
        return not self._begun or self.copy.whole

    def redirected(self, status: int, location: str) -> None:
        """Record the redirect that the body is sent again for: the client gets it if the copy is dropped meanwhile."""
        self._redirect = HttpRefused(status, _DROPPED, "redirect", (("Location", location),), close=True)

    async def send(self, writer: "AbstractStreamWriter") -> None:
        """Write the whole body; raises NotReplayable, or HttpRefused (kept in `refusal`) if the client is too slow.

        Waits to be stopped where the broker takes no more: it may have answered before that.
        """
        self._sender = asyncio.current_task()
        try:
            await self._send(writer)
        except _TakesNoMore:
            # aiohttp would forget an answer that it has not read yet if this ended, in whatever way. The connection's
            # end tells whether there is one.
            await asyncio.get_running_loop().create_future()

    async def _send(self, writer: "AbstractStreamWriter") -> None:
        if not self.replayable:
            raise NotReplayable("the connection to the broker broke, and the request cannot be sent again")
        # Send the headers at once: a broker may redirect or refuse before it gets the body.
        with _to_broker():
            writer.send_headers()
        if self._begun:
            await self._send_copy(writer)
        self._begun = True
        await self._send_continue()
        while piece := await self._read():
            self.copy.keep(piece)
            await self._write(writer, piece)
        # aiohttp does the same after this, but an error would be nobody's there.
        with _to_broker():
            await writer.write_eof()

    async def _send_copy(self, writer: "AbstractStreamWriter") -> None:
        for start in range(0, self.copy.size, self._step_bytes):
            piece = self.copy.piece(start, self._step_bytes)
            if piece is None:
                self.refusal = self._redirect
                raise NotReplayable(_DROPPED)
            await self._write(writer, piece)

    async def stop(self) -> None:
        """Cancel the task that sends the body: two tasks would each get a part of the client's bytes."""
        sender, self._sender = self._sender, None
        if sender is not None and not sender.done():
            sender.cancel()
            await asyncio.wait([sender])

    async def _read(self) -> bytes:
        clock, upload = asyncio.get_running_loop().time, self._upload
        piece = b""
        # Bodies that came while their brokers were busy may all be read in one iteration. Not the client's time.
        await self._turn()
        try:
            async with asyncio.timeout(upload.stall_seconds) as patience:
                upload.wait(clock(), lambda: patience.reschedule(clock()))
                piece = await self._request.content.read(self._step_bytes)
        except TimeoutError as error:
            self.refusal = upload.refusal
            raise self.refusal from error
        finally:
            upload.received(clock(), len(piece))
        return piece

    async def _write(self, writer: "AbstractStreamWriter", piece: bytes) -> None:
        await hear(cast("StreamWriter", writer).transport)
        with _to_broker():
            await writer.write(piece)
            await writer.drain()
        self._counters[BODY_BYTES]["to_broker"] += len(piece)

    async def _send_continue(self) -> None:
        """Send 100 Continue to a client that asked for it, now that a broker can take the body."""
        if self._expects_continue:
            self._expects_continue = False
            await self._request.writer.write(_CONTINUE)
            # aiohttp counts these bytes as part of the answer otherwise.
            self._request.writer.output_size = 0


class _TakesNoMore(Exception):
    """The connection to a broker has broken: nothing can be written."""


@contextmanager
def _to_broker() -> Iterator[None]:
    """Raise _TakesNoMore if a write fails, and no OSError, which might be that of a client."""
    try:
        yield
    except OSError as error:
        raise _TakesNoMore from error


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
