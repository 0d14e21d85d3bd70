"""Order everything that is written to one client, and hold a permit for what the client does not read.

A body in progress is never interrupted by another frame. Frames that the client does not take wait here and in the
transport: beyond a small allowance they take direct memory, and reading of the client stops until they
have left; without memory the client is closed, so that the proxy stays within its budget.
"""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any, Final

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.commands import PING_FRAME
from protocol.slabs import SLAB_BYTES
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import TaskClock, call_each
from proxy.net.body_turn import BodyTurn, ReaderShare
from proxy.net.pump import Pump
from proxy.net.send_buffers import SendBuffer
from proxy.net.spill.body import Body, SpillableBody
from proxy.net.transport import Endpoint, peer_name
from proxy.net.write_watch import PROOF_BYTES, WriteLock, WriteProgress, WriteWatch

# Unsent bytes up to this are part of what a connection at rest may cost (docs/memory.md); more needs a permit.
ALLOWANCE_BYTES: Final = 4096
# Answers of a client that reads may pass a full limit by this much, one client at a time, before the client is closed.
OVERSHOOT_BYTES: Final = 64 * 1024
# A client that takes everything at once yields to others after this much: about 2 ms of writing.
_STEP_BYTES: Final = 8 * 1024 * 1024


class Output:
    """Write frames and bodies to `endpoint` in order."""

    __slots__ = (
        "_answer_line",
        "_body",
        "_callers",
        "_clock",
        "_direct",
        "_endpoint",
        "_gathering",
        "_left",
        "_on_disk",
        "_permit",
        "_pinged",
        "_proven",
        "_pumping",
        "_queue",
        "_seen",
        "_share",
        "_stood_at",
        "_took",
        "_turns",
        "_watch",
        "_write_lock",
        "_writing",
        "buffer",
        "expected_bytes",
        "progress",
        "sent_bytes",
    )

    def __init__(self, endpoint: Endpoint, direct: AsyncSemaphore, watch: WriteWatch) -> None:
        self._endpoint = endpoint
        self._direct = direct
        self._permit: Permit | None = None
        # Empty bytes, or the frames that wait: each client at rest has an output, and a bytearray takes 56 bytes.
        self._queue: bytes | bytearray = b""
        self._gathering = self._body = False
        # Unsent bytes of a body that the pump writes: nothing of such a body is in the transport.
        self._left = 0
        self._pumping: Body | None = None
        self._clock: TaskClock | None = None
        # The share of the body in progress.
        self._share: ReaderShare | None = None
        # Listeners for a PONG of the client; `_pinged`: a PING for them is on its way.
        self._callers: list[Callable[[], None]] | None = None
        self._pinged = self._proven = False
        # Bytes that the client had taken when it last stood still.
        self._stood_at = 0
        # The body in progress is on disk, and nothing of it holds direct memory.
        self._on_disk = False
        self._write_lock: WriteLock | None = None
        self._writing: asyncio.Lock | None = None
        self._answer_line: asyncio.Lock | None = None
        self._turns: dict[BodyTurn, None] | None = None
        # Bytes of answers that are read from a broker now because the socket has room for them, or their client reads.
        self.expected_bytes = 0
        self._watch = watch
        self._took, self._seen, self.sent_bytes = False, 0, 0
        self.progress: WriteProgress | None = None
        # The send buffer, once the client is in lookup mode.
        self.buffer: SendBuffer | None = None

    @property
    def write_lock(self) -> WriteLock:
        """Return the right to write a list: one list at a time for each client."""
        if self._write_lock is None:
            self._write_lock = WriteLock()
        return self._write_lock

    @property
    def answer_line(self) -> asyncio.Lock:
        """Return the line of answers that found no room: one at a time for each client, in order."""
        if self._answer_line is None:
            self._answer_line = asyncio.Lock()
        return self._answer_line

    def moved(self) -> bool:
        """Return whether the client has taken anything since the last call: a client that reads is alive."""
        seen = self._buffered_bytes
        moved = self._took or seen != self._seen
        self._took, self._seen = False, seen
        return moved

    @property
    def _buffered_bytes(self) -> int:
        transport = self._endpoint.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    @property
    def pending_bytes(self) -> int:
        """Count the bytes of frames (not of a body) that wait in user space."""
        return len(self._queue) + (0 if self._body else self._buffered_bytes)

    @property
    def unsent_bytes(self) -> int:
        """Count all bytes that wait in user space, with those of the list that is being written."""
        return len(self._queue) + self._buffered_bytes + self._left

    @property
    def held_bytes(self) -> int:
        """Count the bytes of the permit for frames that wait; a list's is its group's."""
        return 0 if self._permit is None else self._permit.size

    @property
    def holds_memory(self) -> bool:
        """Return whether a permit owns bytes until this client takes them: many frames, or a body that is not on disk.

        A body behind the body in progress counts, too: the client that does not take the first keeps the others there.
        """
        return self._permit is not None or any(turn.holds_memory for turn in self._turns or ())

    @property
    def busy(self) -> bool:
        """Return whether an answer is under way that this client has to take before the next one."""
        return bool(self._turns or self.expected_bytes)

    @property
    def disk_bytes(self) -> int:
        """Return the unsent bytes of the list that is being written, if the list is on disk; else 0."""
        return self._left if self._on_disk else 0

    @property
    def holds_up_a_list(self) -> bool:
        """Return whether a list that holds heap memory waits until this client has taken its earlier lists."""
        return self._write_lock is not None and self._write_lock.awaited

    # --- whether the client reads -----------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """Return whether the client has taken more than its receive buffer holds since it last stood or was slow."""
        enough = self._stood_at + PROOF_BYTES
        if not self._proven and self.sent_bytes >= enough and self._taken_bytes >= enough:
            self._proven = True
            self._watch.saw_quick()
        return self._proven

    def has_room_for(self, size: int) -> bool:
        """Return whether the socket's send buffer takes `size` bytes at once, whether the client reads or not."""
        if self._body or self._endpoint.write_pending:
            return False
        wanted = size + self.expected_bytes + self._endpoint.kernel_queue_bytes()
        fits = self.buffer is not None and self.buffer.fits(wanted)
        # Half of a send buffer is for the kernel's own records.
        return fits or wanted <= self._endpoint.send_buffer_bytes() // 2

    def call(self, answered: Callable[[], None]) -> None:
        """Send a PING, and call `answered` once when a PONG comes: a client that does not read answers no PING."""
        self._callers = [*(self._callers or ()), answered]
        if not self._pinged:
            # A PING on its way serves all, so that requests without end leave no PINGs without end.
            self._pinged = True
            self.send(PING_FRAME)

    def uncall(self, answered: Callable[[], None]) -> None:
        """Stop waiting for a PONG."""
        if self._callers is not None and answered in self._callers:
            self._callers.remove(answered)

    def ponged(self) -> None:
        """Call those that wait for a PONG."""
        self._pinged, callers, self._callers = False, self._callers, None
        call_each(callers or (), self._endpoint.crashed)

    @property
    def _taken_bytes(self) -> int:
        return self.sent_bytes - self._buffered_bytes - self._endpoint.kernel_queue_bytes()

    def send(self, frame: bytes) -> None:
        """Write a small frame, after the body in progress and after the frames that the client has not taken."""
        if not self._endpoint.open:
            return
        if not self._gathering and not self._body and not self._endpoint.write_pending:
            self._write(frame)
        elif self._queue:
            # Frames are joined here: in the transport each unsent frame costs many times its bytes.
            self._queue += frame
        else:
            self._queue = bytearray(frame)
        if not self._gathering:
            self._account()

    def gather(self) -> None:
        """Join the frames that are sent until `send_gathered`, within this turn: one system call for many answers."""
        self._gathering = True

    def send_gathered(self) -> None:
        """Write what was joined since `gather`, and write each frame at once again."""
        self._gathering = False
        if not self._queue or not self._endpoint.open:
            return
        if not self._body and not self._endpoint.write_pending:
            frames, self._queue = bytes(self._queue), b""
            self._write(frames)
        self._account()

    def _write(self, frames: bytes) -> None:
        if self.progress is not None:
            # A frame handed over is no progress for `moved`: our own PING would keep a dead client alive.
            self.progress.handed_bytes += len(frames)
        self.sent_bytes += len(frames)
        self._endpoint.write(frames)

    def flush(self) -> None:
        """Write everything to the transport: the connection is about to close."""
        if self._queue and not self._body:
            self.handed(len(self._queue))
            self._endpoint.write(bytes(self._queue))
            self._queue = b""

    def _holding(self, body: Body | None = None) -> BodyTurn:
        """Count a body that has its memory, and may have to wait for its turn, in a `with` block."""
        turns = self._turns = {} if self._turns is None else self._turns
        return BodyTurn(turns, body if isinstance(body, SpillableBody) else None)

    async def earlier_bodies(self) -> None:
        """Wait until the bodies that have their memory now are over."""
        if self._writing is not None:
            async with self._writing:
                pass

    async def send_body(
        self,
        prefix: bytes,
        pieces: Iterable[memoryview],
        clock: TaskClock | None = None,
        share: ReaderShare | None = None,
    ) -> None:
        """Write one frame made of `prefix` and `pieces`; return when the whole frame has left user space.

        The next piece is fetched when the last has left. `clock` is stopped with the first byte; `share` hears whether
        the client reads or stands still during the write.
        Another body waits for this one; both hold their direct permits already, so nobody waits here for memory. A
        cancel before the first byte leaves the connection as it was, a later one ends it. Raises ConnectionClosed if
        the client is gone.
        """
        if self._writing is None:
            self._writing = asyncio.Lock()
        try:
            with self._holding() as turn:
                async with self._writing:
                    self._clock, self._share = clock, share
                    await self._send_body(turn, self._write_pieces(prefix, pieces), PROOF_BYTES)
        finally:
            # The clock knows its task, and a cancelled task knows this frame: the two would keep the pieces.
            del clock

    async def send_pumped(
        self,
        prefix: bytes,
        body: Body,
        pump: Pump,
        clock: TaskClock | None = None,
        share: ReaderShare | None = None,
    ) -> None:
        """Write the list `prefix` and `body` as `send_body` does, in the pump's turns, and after the earlier lists.

        A list that waits for its turn does so with its memory, and counts as the client's.
        """
        if self._writing is None:
            self._writing = asyncio.Lock()
        try:
            with self._holding(body) as turn:
                async with self.write_lock, self._writing:
                    self._left, self._pumping = len(prefix) + body.size, body
                    self._clock, self._share = clock, share
                    if turn.spillable is not None:
                        turn.spillable.listen(self._moved_to_disk)
                    try:
                        await self._send_body(turn, pump.send(self._endpoint, prefix, body, self._pumped), self._left)
                    finally:
                        self._left, self._pumping = 0, None
                        self._on_disk = False
                        if turn.spillable is not None:
                            turn.spillable.forget(self._moved_to_disk)
        finally:
            del clock

    async def _send_body(self, turn: BodyTurn, writing: Coroutine[Any, Any, None], size: int) -> None:
        endpoint, buffer = self._endpoint, self.buffer
        try:
            if buffer is not None and not buffer.begin(size):
                await buffer.wait(size)
            while endpoint.write_pending or not endpoint.open:
                await endpoint.drained()
        except BaseException:
            self._clock = self._share = None
            writing.close()
            if buffer is not None:
                buffer.end()
            raise
        self._body = turn.begun = True
        handed = self.sent_bytes
        self._watch.add(self)
        try:
            await writing
        except BaseException:
            if self.sent_bytes != handed:
                # The frame is cut: nothing else may follow it on this connection.
                endpoint.abort(DisconnectCause.WRITE_FAILED)
            raise
        finally:
            self._clock = self._share = None
            self._body = False
            if buffer is not None:
                buffer.end()
            if endpoint.open:
                self._flush()

    async def _write_pieces(self, prefix: bytes, pieces: Iterable[memoryview]) -> None:
        """Write `prefix` with the first piece, and each further piece when the last has left user space."""
        endpoint, first, in_this_step = self._endpoint, prefix, 0
        for piece in pieces:
            self.handed(len(first) + len(piece))
            if first:
                endpoint.writelines((first, piece))
                first = b""
            else:
                endpoint.write(piece)
            await endpoint.drained()
            self._note_proof()
            self._grow_late(PROOF_BYTES)
            in_this_step += len(piece)
            if in_this_step >= _STEP_BYTES:
                # A client as fast as the proxy would keep the loop to itself for the length of a large list.
                in_this_step = 0
                await asyncio.sleep(0)
        if first:
            self.handed(len(first))
            endpoint.write(first)
            await endpoint.drained()

    # --- for the watch over slow readers (write_watch.Writer) --------------------------------------

    def handed(self, count: int) -> None:
        """Count waiting bytes as handed on, to transport or kernel: the client takes its bytes."""
        self._took = True
        self.sent_bytes += count
        if self.progress is not None:
            self.progress.handed_bytes += count
        if self._clock is not None and self._body:
            self._clock.stop()
            self._clock = None

    def _moved_to_disk(self) -> None:
        self._on_disk = True
        if self._write_lock is not None:
            self._write_lock.moved_to_disk()

    def _pumped(self, count: int) -> None:
        self._left -= count
        self.handed(count)
        self._note_proof()
        self._grow_late(self._left)

    def _grow_late(self, left: int) -> None:
        if self.buffer is not None and self.buffer.lacking:
            self.buffer.retry(left)

    def _note_proof(self) -> None:
        # Only between writes: bytes on their way to the transport would count as taken.
        if self._share is not None and self.reads and self._share.held:
            self._share.proven()

    @property
    def client(self) -> str:
        """Return the client's name for the log."""
        transport = self._endpoint.transport
        return "?" if transport is None else peer_name(transport)

    @property
    def waiting(self) -> bool:
        """Return whether anything waits to be written to a client that is still there."""
        return self._endpoint.open and (self._body or self._endpoint.write_pending)

    def sample(self, progress: WriteProgress, now: float) -> None:
        """Record in `progress` the bytes that the client's kernel has acknowledged."""
        self._took |= progress.note(now, self._buffered_bytes, self._endpoint.kernel_queue_bytes())
        if progress.pace is not None or progress.stands(now):
            self._proven = False
            self._stood_at = self._taken_bytes
            if self._share is not None:
                self._share.stands()

    @property
    def owed(self) -> tuple[int, int] | None:
        """Return the list in progress (a number that names the list) and what memory it holds, if in no share."""
        if not self._left or self._on_disk or self._pumping is None or (self._share is not None and self._share.held):
            return None
        left_slabs = max(0, self._pumping.size - self._left) // SLAB_BYTES
        return id(self._pumping), self._pumping.size - left_slabs * SLAB_BYTES

    def give_back(self, most: int) -> int:
        """End a share of at most so many bytes that the list in progress has because its client was awake.

        Return what is owed for that.
        """
        body, share = self._pumping, self._share
        if body is None or body.size > most or share is None or not share.held:
            return 0
        share.stands()
        owed = self.owed
        return 0 if owed is None else owed[1]

    @property
    def held_up(self) -> Iterable[tuple[Hashable, int]]:
        """Return names and sizes of lists in heap memory behind the list in progress, if that or they are owed."""
        if self._write_lock is None or self._pumping is None or self.goes_to_disk:
            return ()
        return self._write_lock.waiting(without_turn=self._share is not None and self._share.held)

    @property
    def goes_to_disk(self) -> bool:
        """Return whether the list in progress is on disk, or will be soon if its memory is needed."""
        return isinstance(self._pumping, SpillableBody) and self._pumping.leaves

    def evict(self, cause: DisconnectCause) -> int:
        """End the connection and drop unsent bytes; return how many were under way, the kernel's included."""
        under_way = len(self._queue) + self._buffered_bytes + self._endpoint.kernel_queue_bytes()
        self._endpoint.reset(cause)
        return under_way

    def crashed(self, error: BaseException) -> None:
        """End the connection because of an exception of its own."""
        self._endpoint.crashed(error)

    # --- for the send buffer --------------------------------------------------

    def own_socket(self) -> Any:
        """Return the connection's socket; None if that is gone."""
        return self._endpoint.own_socket()

    def took_all_but(self, count: int) -> bool:
        """Return whether the client has acknowledged all but `count` bytes, and nothing is about to be written."""
        return not self.busy and self.unsent_bytes + self._endpoint.kernel_queue_bytes() <= count

    # --- the end of a wait ------------------------------------------------------------------------

    def drained(self) -> None:
        """Called when the transport is empty: write waiting frames, and release the permit of those that have left."""
        if not self._body:
            self._flush()

    def close(self) -> None:
        """Drop unsent bytes: the client is gone."""
        self._watch.discard(self)
        self._queue = b""
        self._callers = None
        if self.buffer is not None:
            self.buffer.close()
        if self._permit is not None:
            # The bytes of the permit must not stay in the transport after its release.
            self._permit.release()
            self._permit = None
            self._endpoint.abort(DisconnectCause.WRITE_FAILED)

    def dissolve(self) -> None:
        """Release the connection, which is gone, and the send buffer: these and the output know each other."""
        self._endpoint = self._endpoint.remains()
        self.buffer = None

    def _flush(self) -> None:
        self.flush()
        self._account() if self._endpoint.write_pending else self._settle()

    def _account(self) -> None:
        pending = self.pending_bytes
        if pending:
            self._watch.add(self)
            if self.buffer is not None and not self._body and self._endpoint.write_pending:
                self.buffer.overflowed()
        # After close nobody would release a permit taken here.
        if pending <= ALLOWANCE_BYTES or not self._endpoint.open:
            return
        self._endpoint.output_full()
        if self._permit is None:
            # Grow an empty permit instead of acquiring one: growth is served before waiters for whole lists.
            self._permit = self._direct.try_acquire(0)
        growth = pending - self._permit.size if self._permit is not None else 0
        room = OVERSHOOT_BYTES + (self._direct.limit - self._direct.held if self._direct.limit > 0 else pending)
        booked = growth <= 0 or (growth <= room and self._permit is not None and self._permit.try_update(pending))
        if not booked:
            self._endpoint.abort(DisconnectCause.MEMORY_LIMIT)

    def _settle(self) -> None:
        if self._permit is not None:
            self._permit.release()
            self._permit = None
        self._endpoint.output_settled()
