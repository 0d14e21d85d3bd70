"""The kernel send buffers of lookup-mode sockets: small, and large where a large answer is written (docs/adr/0066).

Rules:
- Socket buffers are charged to the container's cgroup. So connections begin with a small buffer, and what all large
  ones take beyond it is bounded in sum (`KernelMemory`).
- A connection that had a large answer keeps its large buffer until another needs the memory.
- An answer that finds no memory waits while others give theirs back. Once nobody has for a moment, the answers that
  wait are written with smaller buffers, and grow while they are written: who does not read slows nobody down for long.
- Relayed sockets are left alone: setting a size ends the kernel's autotuning.
"""

import asyncio
import socket
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from proxy.config.config import Config
from proxy.config.values import SMALL_SEND_BUFFER_BYTES
from proxy.core.counters import Counters, counter, gauge
from proxy.core.tasks import call_each
from proxy.net.tcp_buffers import tcp_buffers

if TYPE_CHECKING:
    from proxy.net.output import Output

# Resting connections that are looked at for one that needs memory: a system call each.
LOOKS: Final = 8
# A part of the sum is for answers that have waited in vain: a buffer of this size, which is quick on every network. On
# loopback a sender waits for delayed acknowledgements with less than two segments of 64 KiB.
MIDDLE_BYTES: Final = 64 * 1024
MIDDLE_PART: Final = 16
# While answers wait for memory, those that rest are looked at this often, and at most so many answers go on at a time.
LOOK_SECONDS: Final = 0.005
GRANTS_A_LOOK: Final = 64
# The answers that wait go on with small buffers once nobody has given memory back for so long.
STILL_SECONDS: Final = 0.05
# No answer waits longer, however many are served meanwhile.
LONGEST_WAIT_SECONDS: Final = 2.0
# While a limit that was lowered is passed: how often, and how many of those that rest are looked at.
TRIM_SECONDS: Final = 1.0
TRIMS_A_TURN: Final = 250
# The size of a buffer that is never changed: that of a connection which has ended, or which the kernel sizes.
_FIXED: Final = 1 << 62
BUFFER_LIMIT_BYTES: Final = gauge(
    "client_send_buffer_limit_bytes",
    "Kernel memory that the send buffers of all lookup-mode connections may fill, as the kernel counts it.",
    "bytes",
)
MEMORY_USED_BYTES: Final = gauge(
    "client_send_memory_used_bytes",
    "Kernel memory that send buffers of lookup-mode connections may fill beyond small ones (clientSocketSendMemoryMB).",
    "bytes",
)
SMALL_BUFFER_ANSWERS: Final = counter(
    "client_small_buffer_answers",
    "Large answers whose writing began with a smaller send buffer, because that memory was used up.",
)


@dataclass(frozen=True, slots=True)
class SendSettings:
    """The buffer that a large answer may have (0: the kernel's choice for all), and the sum of all beyond small ones.

    `memory_bytes` None: no sum, and each connection has the large buffer from its start.
    """

    buffer_bytes: int
    memory_bytes: int | None

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the settings of a configuration."""
        return cls(config.client_socket_send_buffer_bytes, config.send_memory_bytes or None)

    def size_for(self, count: int) -> int:
        """Return the size to ask for so that `count` bytes fit, as far as the settings allow."""
        if self.memory_bytes is None or self.buffer_bytes <= SMALL_SEND_BUFFER_BYTES:
            return self.buffer_bytes
        # Few sizes: a connection whose answers differ a little asks the kernel once.
        return min(self.buffer_bytes, max(SMALL_SEND_BUFFER_BYTES, 1 << max(0, count - 1).bit_length()))


class KernelMemory:
    """The kernel memory of all buffers beyond the small ones: a book without sockets and without a clock.

    Every connection has a small buffer, which is not booked. The bytes by which a buffer is larger are booked here,
    while the sum has room. A connection keeps its large buffer as long as nobody else needs the memory, so a quick
    client asks once in its life. Nothing is taken from a connection that uses its buffer: connections that rest give
    theirs back, the connection that has rested longest first. `limit_bytes` may change at any time, None is no limit.
    """

    __slots__ = ("limit_bytes", "resting", "used_bytes")

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        # Holders that have a large buffer and rest, the longest rest first. A holder enters by itself when
        # it has nothing to send any more, and leaves before it sends: that is for each answer, and must cost no call.
        self.resting: dict[SendBuffer, None] = {}

    @property
    def over(self) -> bool:
        """Return whether more is booked than the limit, which was lowered."""
        return self.limit_bytes is not None and self.used_bytes > self.limit_bytes

    def take(self, holder: "SendBuffer", wanted_bytes: int, spared_bytes: int = 0) -> bool:
        """Take `wanted_bytes` for `holder` in place of what the holder has; return False if there is no room for that.

        `spared_bytes` of the limit are left to others.
        """
        growth = wanted_bytes - holder.booked_bytes
        needed = growth + spared_bytes
        if growth > 0 and not self._has_room(needed):
            self._take_back(holder, needed, LOOKS)
            if not self._has_room(needed):
                return False
        self.used_bytes += growth
        holder.booked_bytes = wanted_bytes
        return True

    def trim(self, looks: int) -> None:
        """Take memory back from those that rest while more is booked than the limit."""
        if self.over:
            self._take_back(None, 0, looks)

    def release(self, holder: "SendBuffer") -> None:
        """End the booking of `holder`: its connection is gone."""
        self.resting.pop(holder, None)
        self.used_bytes -= holder.booked_bytes
        holder.booked_bytes = 0

    def _has_room(self, needed: int) -> bool:
        return self.limit_bytes is None or self.used_bytes + needed <= self.limit_bytes

    def _take_back(self, wanting: "SendBuffer | None", needed: int, looks: int) -> None:
        for _ in range(min(looks, len(self.resting))):
            holder = next(iter(self.resting))
            del self.resting[holder]
            if holder is not wanting and holder.spare():
                self._shrink(holder)
                if self._has_room(needed):
                    return
            else:
                self.resting[holder] = None

    def _shrink(self, holder: "SendBuffer") -> None:
        self.release(holder)
        holder.shrink()


class SendBuffer:
    """The buffer of one connection; `asked_bytes` is what the kernel was asked for, `size` what the kernel made of it.

    Linux doubles the size that is set: `size` includes the kernel's bookkeeping, about half of it is data.
    """

    __slots__ = ("_active", "_all", "_resting", "_sender", "asked_bytes", "booked_bytes", "lacking", "size", "waiter")

    def __init__(self, of_all: "SendBuffers", sender: "Output") -> None:
        self._all = of_all
        self._sender = sender
        self._active = False
        self._resting = of_all.memory.resting
        self.asked_bytes = self.size = 0
        self.booked_bytes = 0
        # Set while an answer waits for memory, and whether one is written with a smaller buffer than it should have.
        self.waiter: asyncio.Future[None] | None = None
        self.lacking = False

    def grow(self, count: int) -> bool:
        """Make room for `count` bytes, as far as settings and the sum allow; return False if the sum has no room.

        Answers that wait for memory go first.
        """
        asked = self._all.settings.size_for(count)
        return asked <= self.asked_bytes or (not self._all.waiting and self.have(asked))

    def have(self, asked_bytes: int) -> bool:
        """Set a larger buffer; return False if the sum has no room."""
        if not self._all.resize(self, asked_bytes):
            return False
        if not self._active:
            self._resting[self] = None
        return True

    def fits(self, count: int) -> bool:
        """Grow if that helps, and return whether `count` bytes fit into the buffer."""
        # Half of a send buffer is for the kernel's own records.
        return count <= self._all.settings.buffer_bytes and self.grow(count) and count <= self.size // 2

    def overflowed(self) -> None:
        """Called when the kernel has not taken all frames: a buffer of twice the size, if there is memory."""
        self.grow(2 * self.asked_bytes)

    def begin(self, count: int) -> bool:
        """Record that an answer of `count` bytes is written now; return False if it has to `wait` for memory before.

        Call `end` in either case.
        """
        self._active = True
        self._resting.pop(self, None)
        return self.grow(count)

    async def wait(self, count: int) -> None:
        """Wait until there is memory for an answer, or the answer is to be written without."""
        asked = self._all.settings.size_for(count)
        await self._all.wait(self, asked)
        self.lacking = asked > self.asked_bytes

    def retry(self, count: int) -> None:
        """Try to have room for what is left of an answer."""
        self.lacking = not self.grow(count)

    def end(self) -> None:
        """Record that the answer has left user space, or never will."""
        self._active = self.lacking = False
        if self.booked_bytes:
            self._resting[self] = None

    def close(self) -> None:
        """Release everything: the connection is gone."""
        self._all.release(self)

    def own_socket(self) -> Any:
        """Return the connection's socket; None if that is gone."""
        return self._sender.own_socket()

    # --- for the book (KernelMemory) ----------------------------------------------------------------------

    def spare(self) -> bool:
        """Return whether all that the client has not taken fits into the small buffer."""
        return self._sender.took_all_but(SMALL_SEND_BUFFER_BYTES // 2)

    def shrink(self) -> None:
        """Set the small buffer again."""
        self._all.set_size(self, SMALL_SEND_BUFFER_BYTES)


class _WaitingAnswer(NamedTuple):
    buffer: SendBuffer
    asked_bytes: int
    since: float
    done: asyncio.Future[None]


class SendBuffers:
    """Make and count the send buffers of all lookup-mode connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters, settings: SendSettings) -> None:
        self.settings = settings
        self.memory = KernelMemory(settings.memory_bytes)
        counters.show(MEMORY_USED_BYTES, lambda: self.memory.used_bytes)
        self._loop = loop
        self._counters = counters
        # As much as the kernel's autotuning may make of a buffer.
        self._autotuned_bytes = tcp_buffers().send
        # Connections with buffers of the same size share one int object: each of them keeps its size.
        self._sizes: dict[int, int] = {}
        self._line: deque[_WaitingAnswer] = deque()
        self._look_scheduled = False
        # When an answer that had waited last got its memory, and whether the line has been given up since.
        self._moved_at = 0.0
        self._still = False

    def apply(self, settings: SendSettings) -> None:
        """Use other settings from now on; buffers that are larger than these allow stay until others need them."""
        self.settings = settings
        self.memory.limit_bytes = settings.memory_bytes
        self._trim()

    def _trim(self) -> None:
        call_each((partial(self.memory.trim, TRIMS_A_TURN),), self._crashed)
        if self.memory.over:
            self._loop.call_later(TRIM_SECONDS, self._trim)

    def open(self, sender: "Output") -> SendBuffer:
        """Return the buffer of a new connection: small, or as large as may be where nothing bounds the sum."""
        buffer = SendBuffer(self, sender)
        if not self.settings.buffer_bytes:
            self._leave_to_kernel(buffer)
        else:
            self.set_size(buffer, self.settings.size_for(0))
            self._book(buffer)
            buffer.end()
        return buffer

    def resize(self, buffer: SendBuffer, asked_bytes: int) -> bool:
        """Set a larger buffer, if the sum has room."""
        large = asked_bytes > MIDDLE_BYTES
        spared = (self.memory.limit_bytes or 0) // MIDDLE_PART if large else 0
        if not self.memory.take(buffer, 2 * max(0, asked_bytes - SMALL_SEND_BUFFER_BYTES), spared):
            return False
        self._still = self._still and not large
        self.set_size(buffer, asked_bytes)
        self._book(buffer)
        return True

    def _book(self, buffer: SendBuffer) -> None:
        """Record what the kernel has made of a size: less than that where net.core.wmem_max allows no more."""
        self.memory.take(buffer, max(0, buffer.size - 2 * SMALL_SEND_BUFFER_BYTES))

    def set_size(self, buffer: SendBuffer, asked_bytes: int) -> None:
        """Set and count the size of a buffer; do nothing if its socket is gone."""
        own = buffer.own_socket()
        if own is None:
            return
        try:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, asked_bytes)
            size = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        except OSError:
            # The connection has ended, and its loss will be told.
            return
        buffer.asked_bytes = self._sizes.setdefault(asked_bytes, asked_bytes)
        self._count(buffer, size)

    def release(self, buffer: SendBuffer) -> None:
        """End a buffer whose connection is gone."""
        self.memory.release(buffer)
        self._count(buffer, 0)
        buffer.asked_bytes = _FIXED
        if buffer.waiter is not None and not buffer.waiter.done():
            buffer.waiter.set_result(None)

    def _count(self, buffer: SendBuffer, size: int) -> None:
        self._counters[BUFFER_LIMIT_BYTES].value += size - buffer.size
        buffer.size = self._sizes.setdefault(size, size)

    def _leave_to_kernel(self, buffer: SendBuffer) -> None:
        own = buffer.own_socket()
        if own is not None:
            size = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            self._count(buffer, max(size, self._autotuned_bytes))
        buffer.asked_bytes = _FIXED

    # --- answers that wait for memory -------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Count the answers that wait for memory."""
        return len(self._line)

    async def wait(self, buffer: SendBuffer, asked_bytes: int) -> None:
        """Wait until an answer has its buffer, or is to be written without."""
        if self._still:
            self._go_without(buffer)
            return
        now = self._loop.time()
        if not self._line:
            self._moved_at = now
        buffer.waiter = self._loop.create_future()
        waiting = _WaitingAnswer(buffer, asked_bytes, now, buffer.waiter)
        self._line.append(waiting)
        self._schedule()
        try:
            await waiting.done
        finally:
            buffer.waiter = None

    def _go_without(self, buffer: SendBuffer) -> None:
        """Set a buffer of middle size if there is one, for an answer that has waited in vain."""
        self._counters[SMALL_BUFFER_ANSWERS].value += 1
        if buffer.asked_bytes < MIDDLE_BYTES:
            buffer.have(min(MIDDLE_BYTES, self.settings.buffer_bytes))

    def _crashed(self, error: BaseException) -> None:
        self._counters.internal_error(error, "send buffers")

    def _schedule(self) -> None:
        if not self._look_scheduled:
            self._look_scheduled = True
            self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Serve the line: with memory as long as somebody gives it back, else without."""
        self._look_scheduled = False
        line, now = self._line, self._loop.time()
        for _ in range(GRANTS_A_LOOK):
            if not line:
                return
            if not line[0].done.done():
                if not self._granted(line[0]):
                    break
                self._moved_at = now
                line[0].done.set_result(None)
            line.popleft()
        self._still = bool(line) and now - self._moved_at >= STILL_SECONDS
        while line and (self._still or now - line[0].since >= LONGEST_WAIT_SECONDS):
            let_go = line.popleft()
            if not let_go.done.done():
                call_each((partial(self._go_without, let_go.buffer),), self._crashed)
                let_go.done.set_result(None)
        if line:
            self._schedule()

    def _granted(self, waiting: _WaitingAnswer) -> bool:
        """Return whether an answer goes on: with its memory, or with what it has if a connection's part raises."""
        try:
            return waiting.buffer.have(waiting.asked_bytes)
        except Exception as error:
            self._crashed(error)
            return True
