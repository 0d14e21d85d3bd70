"""Stream a broker's answer to a client in steps, under the watch over slow readers.

Rule: the next step is read from the broker when the last has left user space. If the broker's answer breaks off, the
client's connection is reset, so that half a list never looks like a whole list.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from limiter.clock import Clock
from proxy.core.counters import Counters, counter, counter_by
from proxy.core.errors import DisconnectCause
from proxy.net.sockets import untaken_bytes
from proxy.net.write_watch import PROOF_BYTES, WriteProgress, WriteWatch
from proxy.web.forward.uploads import Sample
from proxy.web.http.endings import reset

if TYPE_CHECKING:
    import asyncio

    from aiohttp import StreamReader
    from aiohttp.web import BaseRequest, StreamResponse

    from proxy.web.forward.topic_list_permits import ListUnderWay

# An answer's header, at most as a rule.
HEADER_BYTES: Final = 4096
BODY_BYTES: Final = counter_by(
    "direction", "http_bytes", "Bytes of bodies forwarded by the web ports.", ("to_broker", "to_client"), "bytes"
)
CUT_ANSWERS: Final = counter(
    "http_cut_answers", "Answers cut off for clients because the broker broke off or the time was over."
)


class BrokerClock:
    """The time-out of an exchange, while its answer is passed on: only waits for the broker count, each for itself.

    The client's part of the time is that of the watch over slow readers.
    """

    def __init__(self, timeout: "asyncio.Timeout", clock: Clock, seconds: float) -> None:
        self._timeout = timeout
        self._clock = clock
        self._seconds = seconds

    def stop(self) -> None:
        """Stop the clock: the client has to take bytes."""
        self._timeout.reschedule(None)

    def restart(self) -> None:
        """Begin a wait for the broker."""
        self._timeout.reschedule(self._clock.time() + self._seconds)


class AnswerWriter:
    """Writes a body to the client of `request` (a `proxy.net.write_watch.Writer`).

    `window` is the topic list whose direct permit covers the body's window; None for other bodies.
    """

    def __init__(
        self,
        request: "BaseRequest",
        client: str,
        counters: Counters,
        watch: WriteWatch,
        window: "ListUnderWay | None" = None,
    ) -> None:
        self.progress: WriteProgress | None = None
        self._request = request
        self._client = client
        self._counters = counters
        self._watch = watch
        self._window = window
        self._handed_bytes = 0
        # Bytes that the client had taken when it last stood still.
        self._stood_at = 0
        self._proven = self._ended = False

    async def write(
        self,
        response: "StreamResponse",
        body: "StreamReader",
        step_bytes: int,
        clock: BrokerClock | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> int:
        """Write all of `body` and return its size; raises ConnectionError if the client has left.

        With a `clock` no time-out cuts the answer because its client reads slowly. `turn` waits for the turn of a step:
        what has come while the clients were busy may all be read in one iteration.

        Reading `body` raises the errors of the broker's connection.
        """
        transport, sent = self._transport, 0
        if transport is not None:
            # With a high mark of 0 a drained write has left user space.
            transport.set_write_buffer_limits(high=0)
        self._watch.add(self)
        try:
            while piece := await body.read(step_bytes):
                if clock is not None:
                    clock.stop()
                if self.progress is not None:
                    self.progress.handed_bytes += len(piece)
                self._handed_bytes += len(piece)
                await response.write(piece)
                await self._request.writer.drain()
                self._note_proof()
                sent += len(piece)
                self._counters[BODY_BYTES]["to_client"] += len(piece)
                if turn is not None:
                    await turn()
                if clock is not None:
                    clock.restart()
        finally:
            self._ended = True
            self._watch.discard(self)
        return sent

    def has_room_for(self, size: int | None) -> bool:
        """Return whether the socket's send buffer takes `size` bytes at once (None: unknown)."""
        own = self._socket
        if size is None or own is None or self._buffered_bytes:
            return False
        # Half of a send buffer is for the kernel's own records.
        room = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
        return size + HEADER_BYTES + self._kernel_bytes <= room

    def _note_proof(self) -> None:
        window = self._window
        if window is not None and not self._proven and self.reads:
            self._proven = True
            self._watch.saw_quick()
            window.share_ends()

    def cut(self) -> None:
        """Reset the client's connection before its answer is complete."""
        self._counters[CUT_ANSWERS].value += 1
        self._reset()

    def taken(self, now: float) -> Sample | None:
        """Return what the client has taken until now; None while the proxy has nothing more for the kernel."""
        if not (buffered := self._buffered_bytes):
            return None
        pending = buffered + self._kernel_bytes
        return Sample(self, now, self._handed_bytes - pending, pending)

    # --- for the watch over slow readers (write_watch.Writer) -------------------------------------

    @property
    def client(self) -> str:
        """Return the client's name for the log."""
        return self._client

    @property
    def waiting(self) -> bool:
        """Return whether the answer is being written to a client that is still there."""
        return not self._ended and self._transport is not None

    @property
    def holds_memory(self) -> bool:
        """Return whether a direct permit covers the bytes that wait."""
        return self._window is not None

    @property
    def holds_up_a_list(self) -> bool:
        """Return False: no list holds heap memory for this client."""
        return False

    @property
    def reads(self) -> bool:
        """Return whether the client has taken more than its receive buffer holds since it last stood or was slow."""
        enough = self._stood_at + PROOF_BYTES
        return self._handed_bytes >= enough and self._taken_bytes >= enough

    @property
    def owed(self) -> tuple[int, int] | None:
        """Return the list in progress (a number that names the list) and what memory it holds, if in no share."""
        window = self._window
        return None if window is None or not window.owed_bytes else (id(self), window.owed_bytes)

    def give_back(self, most: int) -> int:
        """End a share of at most so many bytes that the list in progress has; return what is owed for that."""
        window = self._window
        if window is None or window.owed_bytes or window.window_bytes > most:
            return 0
        window.share_ends()
        return window.owed_bytes

    @property
    def goes_to_disk(self) -> bool:
        """Return False: answers over HTTP stay in memory."""
        return False

    @property
    def held_up(self) -> tuple[()]:
        """Return nothing: no list holds heap memory for this client."""
        return ()

    @property
    def disk_bytes(self) -> int:
        """Return 0: answers over HTTP stay in memory."""
        return 0

    def sample(self, progress: WriteProgress, now: float) -> None:
        """Record in `progress` the bytes that the client's kernel has acknowledged."""
        progress.note(now, self._buffered_bytes, self._kernel_bytes)
        if progress.pace is None and not progress.stands(now):
            return
        self._stood_at, self._proven = self._taken_bytes, False
        # Where nobody is closed for what is owed, a reader that stands stays in its share.
        if self._window is not None and self._watch.limits.min_bytes_per_second:
            self._window.share_ends()

    def evict(self, cause: DisconnectCause) -> int:
        """Reset the connection; return the unsent bytes, the kernel's included."""
        under_way = self._buffered_bytes + self._kernel_bytes
        self._counters.disconnected(cause)
        self._reset()
        return under_way

    def crashed(self, error: BaseException) -> None:
        """Report an unexpected exception of the watch and reset the connection."""
        self._counters.internal_error(error, "web")
        self._reset()

    @property
    def _taken_bytes(self) -> int:
        return self._handed_bytes - self._buffered_bytes - self._kernel_bytes

    @property
    def _transport(self) -> "asyncio.Transport | None":
        transport = self._request.transport
        return None if transport is None or transport.is_closing() else transport

    @property
    def _buffered_bytes(self) -> int:
        transport = self._transport
        return transport.get_write_buffer_size() if transport is not None else 0

    @property
    def _socket(self) -> socket.socket | None:
        transport = self._transport
        return transport.get_extra_info("socket") if transport is not None else None

    @property
    def _kernel_bytes(self) -> int:
        own = self._socket
        if own is None:
            return 0
        try:
            return untaken_bytes(own.fileno())
        except OSError:
            return 0

    def _reset(self) -> None:
        if (transport := self._transport) is not None:
            reset(transport)
