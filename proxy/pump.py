"""Write one body to many sockets, a few milliseconds at a time, so that no storm keeps the event loop to itself.

The body lies in a file in memory and the kernel sends from there: what waits in a thousand send buffers are references
to its pages, not copies of it, and nothing of it waits in this process. Sockets take turns; one that takes no more
is left alone until the kernel says that it does. A transport would write to every socket that has room in one turn of
the loop: with thousands of readers that is a fifth of a second in which nobody gets a PONG.
"""

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.errors import ConnectionClosed, DisconnectCause
from proxy.transport import Endpoint

# One turn of the loop writes for so long, and then looks at everything else.
TURN_SECONDS: Final = 0.004
STEP_BYTES: Final = 256 * 1024
# What a turn starts besides writing (to wake a member costs a step of its task, in the loop's next turn).
CALLS_A_TURN: Final = 64
_EVENTS_A_TURN: Final = 1024
# A prefix alone in a segment would cost about as much as 64 KiB do: it goes with the first bytes of the body.
HEAD_BYTES: Final = 4096


class PagedBody:
    """Hold bytes in an anonymous file: written once, then sent any number of times, never changed.

    Pages that were sent may be referred to by the kernel after `close`; they are its own until the last reader has
    them. Raises OSError if there is no descriptor for it.
    """

    __slots__ = ("_fd", "size")

    def __init__(self) -> None:
        self._fd = os.memfd_create("topic-list", os.MFD_CLOEXEC)
        self.size = 0

    def append(self, piece: memoryview) -> None:
        """Copy `piece` to the end."""
        while len(piece):
            written = os.write(self._fd, piece)
            self.size += written
            piece = piece[written:]

    def send(self, fd: int, offset: int, count: int) -> int:
        """Send up to `count` bytes from `offset` and return how many the socket took; raises OSError."""
        return os.sendfile(fd, self._fd, offset, count)

    def head(self, count: int) -> bytes:
        """Read the first bytes, to send them together with a prefix."""
        return os.pread(self._fd, count, 0)

    def close(self) -> None:
        """Give the file up; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class _Write:
    """One body on its way to one socket."""

    __slots__ = ("body", "done", "endpoint", "fd", "on_moved", "position", "prefix", "queued")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        prefix: bytes,
        body: PagedBody,
        on_moved: Callable[[int], None],
    ) -> None:
        self.endpoint = endpoint
        self.fd = endpoint.fd
        self.prefix = prefix
        self.body = body
        self.position = -len(prefix)
        self.on_moved = on_moved
        self.queued = False
        self.done: asyncio.Future[None] = loop.create_future()

    def step(self) -> bool:
        """Write once; tells whether the socket took all it was given. Raises OSError."""
        if self.position < 0:
            pieces = memoryview(self.prefix)[self.position :], self.body.head(HEAD_BYTES)
            asked = sum(map(len, pieces))
            sent = os.writev(self.fd, pieces)
        else:
            asked = min(STEP_BYTES, self.body.size - self.position)
            sent = self.body.send(self.fd, self.position, asked)
        self.position += sent
        self.on_moved(sent)
        return sent == asked


class Pump:
    """Write bodies to sockets in turns; also gives others a turn (`call`)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._epoll = select.epoll()
        self._waiting: dict[int, _Write] = {}
        self._ready: deque[_Write] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._scheduled = False
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready) + len(self._calls)

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` soon: few in one turn of the loop, in order."""
        self._calls.append(function)
        self._schedule()

    async def send(self, endpoint: Endpoint, prefix: bytes, body: PagedBody, on_moved: Callable[[int], None]) -> None:
        """Write `prefix` and `body` to a socket nobody else writes to meanwhile.

        `on_moved` hears of the bytes as the kernel takes them. Raises ConnectionClosed.
        """
        if not endpoint.open:
            raise ConnectionClosed(endpoint.cause or endpoint.peer_closed_cause)
        write = _Write(self._loop, endpoint, prefix, body, on_moved)
        self._enqueue(write)
        try:
            await write.done
        finally:
            self._forget(write)

    def close(self) -> None:
        """Give up the epoll set."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _enqueue(self, write: _Write) -> None:
        write.queued = True
        self._ready.append(write)
        self._schedule()

    # --- turns ------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        ready, calls = self._ready, self._calls
        try:
            for _ in range(min(len(calls), CALLS_A_TURN)):
                calls.popleft()()
            end = self._now() + TURN_SECONDS
            while ready and self._now() < end:
                self._step(ready.popleft())
        finally:
            if ready or calls:
                self._schedule()

    def _step(self, write: _Write) -> None:
        if write.done.done():
            return
        try:
            self._write_once(write)
        except Exception as error:
            write.done.set_exception(ConnectionClosed(DisconnectCause.CONNECTION_RESET, str(error)))
            # The one that waits for it may be on its way out already.
            write.done.exception()
            if isinstance(error, OSError):
                write.endpoint.abort(DisconnectCause.CONNECTION_RESET)
            else:
                write.endpoint.crashed(error)

    def _write_once(self, write: _Write) -> None:
        # The number of a socket that was closed may be another's by now.
        if not write.endpoint.open or write.endpoint.fd != write.fd:
            write.done.set_exception(ConnectionClosed(write.endpoint.cause or DisconnectCause.WRITE_FAILED))
            return
        try:
            took_all = write.step()
        except BlockingIOError:
            took_all = False
        if write.position >= write.body.size:
            write.done.set_result(None)
        elif took_all:
            self._ready.append(write)
        else:
            self._await_room(write)

    # --- sockets that are full --------------------------------------------------------------------

    def _await_room(self, write: _Write) -> None:
        write.queued = False
        if self._waiting.get(write.fd) is not write:
            self._waiting[write.fd] = write
            # Edge-triggered, so that one call serves for all the times this socket is full; room that is there already
            # is reported once.
            self._epoll.register(write.fd, select.EPOLLOUT | select.EPOLLET)

    def _dispatch(self) -> None:
        for fd, _ in self._epoll.poll(0, _EVENTS_A_TURN):
            write = self._waiting.get(fd)
            if write is not None and not write.queued:
                self._enqueue(write)

    def _forget(self, write: _Write) -> None:
        if self._waiting.get(write.fd) is write:
            del self._waiting[write.fd]
            try:
                self._epoll.unregister(write.fd)
            except OSError:
                # The socket was closed already: the kernel has dropped it from the set.
                return
