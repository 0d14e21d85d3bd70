"""Write large bodies to sockets, a few milliseconds at a time, so that no storm keeps the event loop to itself.

A transport would write to every socket that has room in one turn of the loop: with thousands of readers that is a fifth
of a second in which nobody gets a PONG. Here sockets take turns; one that takes no more is left alone until the kernel
says that it does. Nothing of a body waits in the transports: what the kernel has not taken stays where it is.
With the native extension its threads write the bodies that many clients share (`away.py`).
"""

import asyncio
import errno
import os
import select
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from protocol.slabs import SLAB_BYTES
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.net.away import AwayWrites, Pages
from proxy.net.spill.body import Body, ListReader, SpillableBody
from proxy.net.spill.read_back import LARGEST_READ_BYTES, SMALLEST_READ_BYTES, DiskRead
from proxy.net.transport import Endpoint

if TYPE_CHECKING:
    from proxy.core.native import RelayEngine

# Longest time that an iteration of the loop spends on writes before it serves everything else.
TURN_SECONDS: Final = 0.003
# A body up to this size is written at once, if such bodies took less than AT_ONCE_SECONDS of the last TURN_SECONDS;
# each counts for some of what its end starts.
SMALL_BODY_BYTES: Final = 64 * 1024
AT_ONCE_SECONDS: Final = 0.001
LEAST_STEP_SECONDS: Final = 0.0001
# The end of a body starts its client's next list and releases memory to others: half a millisecond of work each.
FINISHED_A_TURN: Final = 6
_EVENTS_A_TURN: Final = 1024
_NOTHING: Final = memoryview(b"")
_ROOM: Final = select.EPOLLOUT | select.EPOLLONESHOT
RETRY_SECONDS: Final = 0.01
# Bytes that a body offers at a time: a slab, or pages of the same size.
STEP_BYTES: Final = SLAB_BYTES
# Bytes at a time over TLS, while the kernel has room for all of them, and when it may have none: four records, or one.
SEALED_STEP_BYTES: Final = 64 * 1024
SMALL_SEALED_STEP_BYTES: Final = 16 * 1024
SEALED_OVERHEAD_BYTES: Final = 512


class Step(Enum):
    """The outcome of an attempt to write."""

    WENT_ON = 1
    SHORT = 2
    FULL = 3
    # The socket has room, and the bytes are on disk.
    ON_DISK = 4


class _Write(ListReader):
    """A body on its way to a socket."""

    __slots__ = (
        "_read",
        "arrived",
        "away",
        "body",
        "done",
        "endpoint",
        "failed",
        "fd",
        "on_moved",
        "pages",
        "prefix",
        "refused",
        "spillable",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        endpoint: Endpoint,
        prefix: bytes,
        body: Body,
        on_moved: Callable[[int], None],
    ) -> None:
        super().__init__(-len(prefix))
        self.endpoint = endpoint
        self.fd = endpoint.fd
        self.prefix = prefix
        self.body = body
        self.on_moved = on_moved
        self.refused = False
        self.done: asyncio.Future[None] = loop.create_future()
        self.spillable = body if isinstance(body, SpillableBody) else None
        # The bytes at `position` of a list on disk, for the next step.
        self.arrived: memoryview | None = None
        self.pages = body if isinstance(body, Pages) else None
        # The number of the body at the threads; None: the loop writes. `failed`: the error that a thread had.
        self.away: int | None = None
        self.failed = 0
        self._read: DiskRead | None = None

    @property
    def on_disk(self) -> bool:
        """Return whether the body has left memory."""
        return self.spillable is not None and self.spillable.file is not None

    def wanted_bytes(self) -> int:
        """Return how many bytes to read from the disk for the next step: as many as the send buffer has room for."""
        # Half of a send buffer is for the kernel's own records.
        room = self.endpoint.send_buffer_bytes() // 2 - self.endpoint.kernel_queue_bytes()
        return min(LARGEST_READ_BYTES, max(SMALLEST_READ_BYTES, room))

    def read(self, on_read: Callable[["_Write", bytes | None], None]) -> None:
        """Ask the disk for the bytes of the next step; `on_read` is not called after `end_read`."""
        assert self.spillable is not None
        self._read = self.spillable.read_from_disk(
            max(0, self.position), self.wanted_bytes(), lambda data: on_read(self, data)
        )

    def end_read(self) -> None:
        """Return the bytes of a read to their pool; do nothing if there is none."""
        self.arrived = None
        read, self._read = self._read, None
        if read is not None:
            read.end()

    def step(self) -> Step:
        """Write once; SHORT if the socket took less than it may be offered. Raises OSError."""
        prefix = memoryview(self.prefix)[self.position :] if self.position < 0 else _NOTHING
        if self.on_disk:
            return self._step_from_disk(prefix)
        try:
            taken = self.body.write(self.fd, prefix, self.position)
        except BlockingIOError:
            return Step.FULL
        if not taken:
            raise OSError("a body ended before its end")
        self.position += taken
        self.on_moved(taken)
        return Step.WENT_ON if taken >= STEP_BYTES else Step.SHORT

    def advance_to(self, position: int) -> None:
        """Take note of what a thread has written."""
        moved = position - self.position
        if moved > 0:
            self.position = position
            self.on_moved(moved)

    def _step_from_disk(self, prefix: memoryview) -> Step:
        piece = self.arrived
        if piece is None:
            # Bytes are read for sockets with room only: a thousand full sockets must not keep the disk busy.
            return Step.ON_DISK if _has_room(self.fd) else Step.FULL
        offered = len(prefix) + len(piece)
        try:
            taken = os.writev(self.fd, (prefix, piece))
        except BlockingIOError:
            return Step.FULL
        finally:
            self.end_read()
        self.position += taken
        self.on_moved(taken)
        return Step.WENT_ON if taken == offered else Step.SHORT


def _has_room(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    # A socket that failed has "room", too: the write reports the failure.
    return bool(poll.poll(0))


class _SealedWrite(_Write):
    """A body on its way through a TLS transport, which copies the bytes written to it.

    Little is written where the kernel may not take everything: the rest waits in user space, once for each client, and
    is part of what a TLS connection may cost (docs/memory.md).
    """

    __slots__ = ()

    def step(self) -> Step:
        """Write once; FULL if the kernel has not taken all of it. Raises OSError."""
        endpoint = self.endpoint
        if endpoint.write_pending:
            # Bytes that were read from disk are read again: they must not hold the pool while the socket is full.
            self.end_read()
            return Step.FULL
        if self.position >= self.body.size:
            # The last bytes have left since.
            return Step.WENT_ON
        piece = self._next_piece()
        if piece is None:
            return Step.ON_DISK
        if self.position < 0:
            endpoint.writelines((self.prefix, piece))
        else:
            endpoint.write(piece)
        moved = len(piece) - min(0, self.position)
        if not moved:
            raise OSError("a body ended before its end")
        self.position = max(0, self.position) + len(piece)
        # The transport has a copy.
        self.end_read()
        self.on_moved(moved)
        return Step.FULL if endpoint.write_pending else Step.WENT_ON

    def _next_piece(self) -> memoryview | None:
        """Return the bytes to write next; None if they are on disk and not asked for yet."""
        if self.on_disk:
            return self.arrived
        return self.body.read(max(0, self.position), self.wanted_bytes())

    def wanted_bytes(self) -> int:
        """Return how many bytes to write at a time: few where the kernel may not take them all."""
        # Half of a send buffer is for the kernel's own records; the buffer may have grown since the last write.
        room = self.endpoint.send_buffer_bytes() // 2 - self.endpoint.kernel_queue_bytes()
        return SEALED_STEP_BYTES if room > SEALED_STEP_BYTES + SEALED_OVERHEAD_BYTES else SMALL_SEALED_STEP_BYTES


class Pump:
    """Write bodies to sockets in turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._epoll = select.epoll()
        self._waiting: dict[int, _Write] = {}
        self._ready: deque[_Write] = deque()
        self._at_disk: set[_Write] = set()
        self._away: AwayWrites[_Write] = AwayWrites()
        self._scheduled = False
        # The window in which bodies are begun at once, and the time that they took.
        self._window_began = -TURN_SECONDS
        self._spent_at_once = 0.0
        loop.add_reader(self._epoll.fileno(), self._dispatch)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._ready) + len(self._at_disk) + len(self._away)

    async def send(self, endpoint: Endpoint, prefix: bytes, body: Body, on_moved: Callable[[int], None]) -> None:
        """Write `prefix` and `body` to a socket that nobody else writes to meanwhile.

        `on_moved` is called with the count of bytes as the kernel takes them. Raises ConnectionClosed.
        """
        kind = _SealedWrite if endpoint.is_tls else _Write
        write = kind(self._loop, endpoint, prefix, body, on_moved)
        if write.spillable is not None:
            write.spillable.begin(write)
        small = body.size <= SMALL_BODY_BYTES and not endpoint.is_tls
        if not small or self._ready or not self._step_now(write):
            self._enqueue(write)
        try:
            await write.done
        finally:
            self._forget(write)
            if write.spillable is not None:
                write.end_read()
                write.spillable.end(write)
            # The traceback of an error holds this frame: with the future that has the error they would be a cycle.
            del write

    def close(self) -> None:
        """Close the epoll set; a second call does nothing."""
        if self._epoll.closed:
            return
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _step_now(self, write: _Write) -> bool:
        """Write a small body at once if there is time, or return False.

        Nearly always it ends with that: no turn of the loop, and no wait of the task that has the body.
        """
        began = self._now()
        if began - self._window_began >= TURN_SECONDS:
            self._window_began, self._spent_at_once = began, 0.0
        elif self._spent_at_once >= AT_ONCE_SECONDS:
            return False
        write.queued = True
        self._step(write)
        self._spent_at_once += max(self._now() - began, LEAST_STEP_SECONDS)
        if self._ready:
            self._schedule()
        return True

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
        ready, end, finished = self._ready, self._now() + TURN_SECONDS, 0
        try:
            while ready and finished < FINISHED_A_TURN:
                write = ready.popleft()
                self._step(write)
                finished += write.done.done()
                if self._now() >= end:
                    break
        finally:
            # The loop reports what the end of an endpoint raises; the others are written to.
            if ready:
                self._schedule()

    def _step(self, write: _Write) -> None:
        if write.done.done():
            return
        try:
            self._write_once(write)
        except Exception as error:
            self._fail(write, error)

    def _fail(self, write: _Write, error: Exception) -> None:
        if write.done.done():
            return
        write.done.set_exception(ConnectionClosed(DisconnectCause.CONNECTION_RESET, str(error)))
        # The waiting task may be about to end already.
        write.done.exception()
        if isinstance(error, OSError):
            write.endpoint.abort(DisconnectCause.CONNECTION_RESET)
        else:
            write.endpoint.crashed(error)

    def _write_once(self, write: _Write) -> None:
        # The descriptor of a socket that was closed may belong to another socket by now.
        if not write.endpoint.open or write.endpoint.fd != write.fd:
            write.done.set_exception(ConnectionClosed(write.endpoint.cause or DisconnectCause.WRITE_FAILED))
            return
        if write.failed:
            raise OSError(write.failed, os.strerror(write.failed))
        if write.away is not None:
            write.done.set_result(None)
            return
        if write.pages is not None and write.position == -len(write.prefix) and self._hand_over(write, write.pages):
            return
        step = write.step()
        if step is Step.ON_DISK:
            write.queued = False
            self._at_disk.add(write)
            write.read(self._read_done)
        elif write.endpoint.is_tls:
            self._after_sealed(write, step)
        elif step is Step.FULL and write.refused:
            # epoll reported room but the write failed: the kernel is out of socket memory, so retry later.
            self._loop.call_later(RETRY_SECONDS, self._enqueue, write)
        elif step is Step.FULL:
            write.refused = True
            self._await_room(write)
        elif write.position >= write.body.size:
            write.done.set_result(None)
        else:
            write.refused = False
            self._ready.append(write) if step is Step.WENT_ON else self._await_room(write)

    def _after_sealed(self, write: _Write, step: Step) -> None:
        if not write.endpoint.open:
            write.done.set_exception(ConnectionClosed(write.endpoint.cause or DisconnectCause.WRITE_FAILED))
        elif step is Step.FULL:
            # The transport has the rest, and calls back when the rest has left.
            write.queued = False
            self._waiting[write.fd] = write
            write.endpoint.drain().add_done_callback(lambda _: self._enqueue(write))
        elif write.position >= write.body.size:
            write.done.set_result(None)
        else:
            self._ready.append(write)

    def _read_done(self, write: _Write, data: bytes | None) -> None:
        self._at_disk.discard(write)
        if write.done.done():
            return
        if data is None:
            # The rest of a frame cannot be had: nothing else may follow on this connection.
            write.done.set_exception(ConnectionClosed(DisconnectCause.SPILL_READ_FAILED))
            write.done.exception()
            write.endpoint.abort(DisconnectCause.SPILL_READ_FAILED)
            return
        write.arrived = memoryview(data)
        self._enqueue(write)

    # --- bodies that threads write ----------------------------------------------------------------

    def threads_started(self, threads: "RelayEngine") -> None:
        """Start to use `threads` for bodies that many clients share."""
        self._away.start(threads)

    def threads_stopped(self) -> None:
        """End the use of threads; bodies whose end was not told are cut."""
        for write in self._away.stop():
            self._returned(write, write.position, 0)

    def _hand_over(self, write: _Write, pages: Pages) -> bool:
        size = write.body.size
        # A body behind other bytes that the client does not take has not begun.
        if write.endpoint.is_tls or not self._away.takes(size) or not _has_room(write.fd):
            return False
        write.away = self._away.take(write, write.fd, write.prefix, pages, size)
        if write.away is None:
            return False
        # The thread's descriptor would keep the entry when the socket is closed here.
        self._unwatch(write)
        write.queued = False
        write.advance_to(0)
        return True

    def body_moved(self, body: int, position: int) -> None:
        """Take note of a body's progress."""
        write = self._away.find(body)
        if write is not None:
            self._advance(write, position)

    def body_ended(self, body: int, position: int, error: int) -> None:
        """End the write of a body that no thread has any more, in its turn."""
        write = self._away.ended(body)
        if write is not None:
            self._returned(write, position, error)

    def catch_up(self) -> None:
        """Take note of how far the bodies are that threads write: the watch over slow readers is about to look."""
        self._away.positions(self._advance)

    def _advance(self, write: _Write, position: int) -> None:
        try:
            write.advance_to(position)
        except Exception as error:
            self._fail(write, error)

    def _returned(self, write: _Write, position: int, error: int) -> None:
        if position < write.body.size:
            # Threads that were stopped have no error to tell of.
            write.failed = error or errno.ECONNABORTED
        self._advance(write, position)
        self._enqueue(write)

    # --- sockets that are full --------------------------------------------------------------------

    def _await_room(self, write: _Write) -> None:
        write.queued = False
        # Register again each time: the kernel checks the socket now, and reports room that is there already. A write is
        # short for other reasons, too (a signal, the end of a slab), and then no edge would ever come.
        if self._waiting.get(write.fd) is write:
            self._epoll.modify(write.fd, _ROOM)
        else:
            self._waiting[write.fd] = write
            self._epoll.register(write.fd, _ROOM)

    def _dispatch(self) -> None:
        for fd, _ in self._epoll.poll(0, _EVENTS_A_TURN):
            write = self._waiting.get(fd)
            if write is not None and not write.queued:
                self._enqueue(write)

    def _forget(self, write: _Write) -> None:
        self._at_disk.discard(write)
        if write.away is not None:
            self._away.let_go(write.away)
        self._unwatch(write)

    def _unwatch(self, write: _Write) -> None:
        if self._waiting.get(write.fd) is write:
            del self._waiting[write.fd]
            try:
                self._epoll.unregister(write.fd)
            except OSError:
                # The socket was closed already: the kernel has dropped it from the set.
                return
