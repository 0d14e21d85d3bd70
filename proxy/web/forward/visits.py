"""A forwarded request as a guest of the places it holds: in the gate, and among the connections to a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from proxy.core.errors import DisconnectCause
from proxy.web.forward.answer_writer import AnswerWriter
from proxy.web.forward.uploads import Sample, Upload
from proxy.web.http.errors import HttpRefused, retry_after

if TYPE_CHECKING:
    from aiohttp import StreamReader

_GAVE_WAY: Final = "this request gave way to those of others: its client holds more than its share; send it again later"


class Visit:
    """A request that is being forwarded, and may hold places (`proxy.web.forward.places`).

    `content` is the request's body; `upload` and `writer` are set while there is an upload or an answer.
    """

    __slots__ = ("_clock", "_content", "_gave_way", "key", "upload", "writer")

    def __init__(self, key: Hashable, content: "StreamReader") -> None:
        self.key = key
        self._content = content
        self.upload: Upload | None = None
        self.writer: AnswerWriter | None = None
        self._clock: asyncio.Timeout | None = None
        self._gave_way = False

    @property
    def uploading(self) -> bool:
        """Return whether a part of the request's body has not come yet."""
        return not self._content.is_eof()

    def when_uploaded(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the whole body has come, at once if it is there; never for a body that breaks off."""
        self._content.on_eof(callback)

    @asynccontextmanager
    async def endable(self) -> AsyncIterator[None]:
        """Run the work inside so that it can be ended; raises HttpRefused with 503 if the request gave way."""
        try:
            async with asyncio.timeout(None) as self._clock:
                yield
        except TimeoutError as error:
            if not self._gave_way:
                raise
            raise HttpRefused(503, _GAVE_WAY, "gave_way", retry_after(1)) from error
        finally:
            self._clock = None

    def sample(self, now: float) -> Sample | None:
        """Return what the client has taken or sent; None while the proxy waits for the server."""
        found = self.writer.taken(now) if self.writer is not None else None
        if found is None and self.upload is not None:
            found = self.upload.sample(now)
        return found

    def give_way(self, *, slow: bool) -> None:
        """End the request: with 408 a slow upload, with a reset an answer that has begun, else with 503."""
        if slow and self.upload is not None and self.upload.awaited:
            self.upload.stop()
        elif self.writer is not None:
            self.writer.evict(DisconnectCause.READS_TOO_SLOWLY if slow else DisconnectCause.GAVE_WAY)
        elif self._clock is not None and not self._clock.expired():
            self._gave_way = True
            self._clock.reschedule(asyncio.get_running_loop().time())

    def crashed(self, error: Exception) -> None:
        """Report an unexpected exception of `sample`, which only an answer can raise, and reset the connection."""
        if self.writer is not None:
            self.writer.crashed(error)
