"""Write a broker's answer to a client step by step, and let the watch over slow readers see how it is taken.

Rule: a step is taken from the broker when the last has left user space; an answer that breaks off is cut off for the
client too, so that half a list never looks like a whole one.
"""

import fcntl
import sys
import termios
from typing import TYPE_CHECKING

from proxy.core.errors import DisconnectCause
from proxy.net.write_watch import WriteProgress, WriteWatch
from proxy.web.http.counters import WebCounters
from proxy.web.http.endings import reset

if TYPE_CHECKING:
    import asyncio
    import socket

    from aiohttp import StreamReader
    from aiohttp.web import BaseRequest, StreamResponse


class AnswerWriter:
    """Write one body to the client of `request` (a `proxy.net.write_watch.Writer`).

    `holds_memory`: a direct permit owns its window.
    """

    def __init__(
        self, request: "BaseRequest", client: str, counters: WebCounters, watch: WriteWatch, *, holds_memory: bool
    ) -> None:
        self.progress: WriteProgress | None = None
        self._request = request
        self._client = client
        self._counters = counters
        self._watch = watch
        self._holds_memory = holds_memory
        self._ended = False

    async def write(self, response: "StreamResponse", body: "StreamReader", step_bytes: int) -> int:
        """Write all of `body` and give its size; the client may be gone (ConnectionError), the broker too."""
        transport, sent = self._transport, 0
        if transport is not None:
            # A drained write has left user space then.
            transport.set_write_buffer_limits(high=0)
        self._watch.add(self)
        try:
            while piece := await body.read(step_bytes):
                if self.progress is not None:
                    self.progress.handed_bytes += len(piece)
                await response.write(piece)
                await self._request.writer.drain()
                sent += len(piece)
                self._counters.bytes_to_clients += len(piece)
        finally:
            self._ended = True
            self._watch.discard(self)
        return sent

    def cut(self) -> None:
        """End the client's connection before its answer is whole."""
        self._counters.cut_answers += 1
        self._reset()

    # --- what the watch over slow readers needs (write_watch.Writer) ------------------------------

    @property
    def client(self) -> str:
        """Name the client for the log."""
        return self._client

    @property
    def waiting(self) -> bool:
        """Tell whether the answer is under way to a client that is still there."""
        return not self._ended and self._transport is not None

    @property
    def holds_memory(self) -> bool:
        """Tell whether a direct permit owns what waits."""
        return self._holds_memory

    @property
    def holds_up_a_list(self) -> bool:
        """Tell that no list holds heap memory for this client."""
        return False

    def sample(self, progress: WriteProgress, now: float) -> None:
        """Note in `progress` what the client has taken: what its kernel has acknowledged."""
        progress.note(now, self._buffered_bytes, self._kernel_bytes)

    def evict(self, cause: DisconnectCause) -> int:
        """End the connection; gives the bytes that were under way, the kernel's included."""
        under_way = self._buffered_bytes + self._kernel_bytes
        self._counters.disconnected(cause)
        self._reset()
        return under_way

    def crashed(self, error: BaseException) -> None:
        """End the connection because of an exception of its own."""
        self._counters.internal_error(error, "web")
        self._reset()

    @property
    def _transport(self) -> "asyncio.Transport | None":
        transport = self._request.transport
        return None if transport is None or transport.is_closing() else transport

    @property
    def _buffered_bytes(self) -> int:
        transport = self._transport
        return transport.get_write_buffer_size() if transport is not None else 0

    @property
    def _socket(self) -> "socket.socket | None":
        transport = self._transport
        return transport.get_extra_info("socket") if transport is not None else None

    @property
    def _kernel_bytes(self) -> int:
        own = self._socket
        if own is None:
            return 0
        try:
            # SIOCOUTQ of Linux, under its other name.
            return int.from_bytes(fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def _reset(self) -> None:
        if (transport := self._transport) is not None:
            reset(transport)
