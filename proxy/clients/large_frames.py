"""Frames of a client that are larger than a connection at rest may hold: refused, or stored under a permit that grows
with what has arrived.

Rules:
- Memory is charged for bytes that have come, never for bytes that were announced. A permit that is full doubles, so
  that it grows a few times only; before the whole frame is handled it grows to LARGE_FRAME_COPIES times the frame.
- The first bytes wait among the newcomers, growth before them; one growth at a time may overshoot the limit
  (docs/adr/0003), so that frames which all grow cannot wait for each other without end.
- Before CONNECTED a frame takes from a small memory of its own, in turns by address: nobody has proven anything yet.
- After CONNECTED a frame takes from a memory of its own, too, as large as a part of direct memory (SHARE_PART): in
  turns by address, until it is answered. It holds no direct memory: no topic list waits for a frame, no question holds
  what its own answer waits for, and no two frames wait for each other, as each grows in one memory only.
- A frame takes at least its place (PLACE_BYTES) there, before its bytes have come. Otherwise that memory would let in
  as many frames as it has room for their first bytes, and all of them would wait to grow.
- While frames wait for either memory, a frame there whose bytes do not come is refused (`proxy.clients.upload_watch`).
- A frame that is refused is answered with its request id, which in some commands stands behind a topic: then its first
  UNBOOKED_FRAME_BYTES are stored to find the id. A client whose id is not there is closed: the client could not tell
  which of its requests an answer is for.
- Every frame has a clock: `seconds` in which the proxy waited for its bytes.

Owns the permit of the frame under way. A client has one such frame at a time: after it nothing is read.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from limiter.errors import PermitAcquireError, PermitAcquireTimeout
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.command_type import CommandType, request_id_number
from protocol.errors import ServerError, TooManyFields
from protocol.field_walker import FieldWalker, read_request_id
from protocol.frames import FrameHead
from protocol.framing import FrameDecoder
from protocol.states import ConnectionState, State, Verdict
from proxy.auth.identity import MAX_AUTH_DATA_BYTES
from proxy.clients.requests import REFUSED, REQUESTS, refusal
from proxy.clients.services import ClientServices
from proxy.core.addresses import host_network
from proxy.core.errors import DIRECT_REFUSAL, DisconnectCause
from proxy.net.transport import LARGE_READ_BYTES
from proxy.net.upload_rate import UploadRate
from proxy.requests.client import Hold
from proxy.telemetry.refusals import Stage

if TYPE_CHECKING:
    from proxy.clients.connection import ClientConnection

# The largest frame before CONNECTED: credentials of a client, those that it may name for another, and all else.
MAX_HANDSHAKE_FRAME_BYTES: Final = 2 * MAX_AUTH_DATA_BYTES + 8 * 1024
# A frame holds this much without a permit: it is part of what a connection at rest may cost (docs/memory.md).
UNBOOKED_FRAME_BYTES: Final = 4096
# While a large frame is handled it is there as received bytes, as a command and as the forwarded frame.
LARGE_FRAME_COPIES: Final = 3
# A frame counts there as this much from its first permit on, unless it needs less in all.
PLACE_BYTES: Final = 64 * 1024
# A frame that has to wait grows by an eighth, which shows whether its client sends more: what one silent client gives
# back is room for eight others to show the same.
STEP_PART: Final = 8
LARGE_COMMANDS: Final[frozenset[int]] = frozenset({CommandType.CONNECT, *REQUESTS})
LARGE_COMMANDS_WITH_CREDENTIALS: Final = LARGE_COMMANDS | {CommandType.AUTH_RESPONSE}


def memory_for(stored: int, frame_bytes: int, charged: int, part: int = 1) -> int:
    """Return the bytes to charge before more of a frame is read, or before the whole frame is handled.

    A permit that is full grows by a `part` of what is stored.
    """
    if stored >= frame_bytes:
        return LARGE_FRAME_COPIES * frame_bytes
    if stored < max(charged, UNBOOKED_FRAME_BYTES):
        return charged
    return min(stored + max(stored // part, UNBOOKED_FRAME_BYTES), frame_bytes)


class _Arriving:
    """A large frame that is being stored: its head, the memory it takes, and the times it has left."""

    __slots__ = ("clock", "head", "memory", "patience_seconds", "place", "rate", "refuse", "seconds", "walker")

    def __init__(
        self,
        head: FrameHead,
        memory: AsyncSemaphore,
        seconds: float,
        place: int = 0,
        refuse: Callable[[int], None] | None = None,
    ) -> None:
        self.head = head
        # For a frame that is stored for its request id only: refuses the request with this id.
        self.refuse = refuse
        self.memory = memory
        self.place = place
        self.walker = FieldWalker()
        self.rate = UploadRate()
        # The proxy waits so long for the frame's bytes, and the frame so long for memory: in all, not each time.
        self.seconds = seconds
        self.patience_seconds = memory.timeout_seconds
        self.clock: asyncio.TimerHandle | None = None


class LargeFrames:
    """Decides about a client's large frames, one at a time; `permit` is that of the frame being handled."""

    __slots__ = ("_arriving", "_decoder", "_sender", "_services", "_state", "permit")

    def __init__(
        self,
        sender: "ClientConnection",
        services: ClientServices,
        decoder: FrameDecoder,
        state: ConnectionState,
    ) -> None:
        self._sender = sender
        self._services = services
        self._decoder = decoder
        self._state = state
        self.permit: Permit | None = None
        self._arriving: _Arriving | None = None

    def detach_permit(self) -> Callable[[], None] | None:
        """Detach the permit; return the callable that releases it, for its new owner, or None without a permit."""
        permit, self.permit = self.permit, None
        return permit.release if permit is not None else None

    def handled(self) -> None:
        """Release the memory of a frame that was handled, unless its permit was detached."""
        if self.permit is not None:
            self.permit.release()
            self.permit = None

    def close(self) -> None:
        """Release everything: the client is gone."""
        self._arrived()
        self.handled()

    # --- for the watch over slow uploads -----------------------------------------------------------

    @property
    def rate(self) -> UploadRate:
        """Return how fast the frame under way has come."""
        assert self._arriving is not None
        return self._arriving.rate

    @property
    def wanted(self) -> bool:
        """Return whether other frames wait for the memory that the frame under way holds."""
        return self._arriving is not None and self._arriving.memory.short

    @property
    def silent(self) -> bool:
        """Return whether the frame has memory for more bytes, the client is read, and nothing more was there."""
        return self._arriving is not None and self._arriving.rate.awaited and not self._sender.put_off

    @property
    def held_bytes(self) -> int:
        """Count the bytes of the permit of the frame under way."""
        return 0 if self.permit is None else self.permit.size

    def give_way(self) -> None:
        """Refuse the frame, whose bytes do not come, as if it had waited too long for memory."""
        arriving = self._arriving
        assert arriving is not None
        memory = arriving.memory
        asked, queued = arriving.head.frame_bytes, memory.queue_size
        error = PermitAcquireTimeout(memory.name, memory.limit, memory.held, asked, queued)
        try:
            self._refuse_memory(arriving, error)
        except Exception as crash:
            # It is this client's end; the watch goes on for all others.
            self._sender.crashed(crash)

    # --- the frame's head --------------------------------------------------------------------------

    @property
    def _served(self) -> frozenset[int]:
        return LARGE_COMMANDS if self._services.authentication is None else LARGE_COMMANDS_WITH_CREDENTIALS

    def on_head(self, head: FrameHead) -> None:
        """Refuse a frame by its first bytes, or begin to store it."""
        kind = head.command_type
        verdict = Verdict.CLOSE if kind is None else self._state.judge(kind)
        if kind is None:
            self._sender.close(DisconnectCause.MALFORMED_FRAME)
        elif verdict is Verdict.CLOSE:
            self._sender.close(DisconnectCause(self._state.close_cause(kind)))
        elif verdict is not Verdict.SERVE:
            self._refuse(head, partial(self._sender.refuse, kind))
        elif kind not in self._served:
            self._refuse(head, partial(self._refuse_size, kind, head))
        else:
            self._begin(head)

    def _refuse(self, head: FrameHead, refuse: Callable[[int], None]) -> None:
        """Refuse a frame with its request id, at once or when the bytes are there that may have it."""
        request_id, kind = _request_id(head), head.command_type
        if request_id == commands.REQUEST_ID_NONE and kind is not None and request_id_number(kind) is not None:
            services = self._services
            self._arriving = _Arriving(head, services.frames, services.limits.frame_seconds, refuse=refuse)
            self._decoder.store()
            self._await_bytes(self._arriving)
            return
        self._decoder.skip()
        refuse(request_id)

    def _refuse_size(self, kind: int, head: FrameHead, request_id: int) -> None:
        """Refuse a PING, or an answer to a question that nobody asked, of a size that none has."""
        self._services.counters[REFUSED]["too_large"] += 1
        name = CommandType(kind).name
        message = f"command {name} has {head.frame_bytes} bytes, at most {UNBOOKED_FRAME_BYTES} are served"
        self._sender.output.send(commands.error(request_id, ServerError.NotAllowedError, message))

    def _refuse_stored(self, arriving: _Arriving, refuse: Callable[[int], None]) -> None:
        """Refuse a frame, whose first bytes are there, with its request id; without one end the connection."""
        request_id = self._stored_request_id(arriving)
        self._pass_over()
        if request_id is None:
            self._sender.close(DisconnectCause.FRAME_TOO_LARGE)
        else:
            refuse(request_id)

    def _stored_request_id(self, arriving: _Arriving) -> int | None:
        """Return the request id in the first bytes that are stored of a frame; None if it is not there."""
        buffer, start, end = self._decoder.stored_command()
        kind = arriving.head.command_type
        return None if kind is None else read_request_id(kind, buffer[start : min(end, UNBOOKED_FRAME_BYTES)])

    def _begin(self, head: FrameHead) -> None:
        services = self._services
        seconds = services.limits.frame_seconds
        if self._state.state in (State.INIT, State.CONNECTING):
            self._arriving = _Arriving(head, services.handshakes, seconds)
        else:
            place = min(LARGE_FRAME_COPIES * head.frame_bytes, PLACE_BYTES)
            self._arriving = _Arriving(head, services.frames, seconds, place)
        self._decoder.store()
        self._services.uploads.add(self)
        self._await_bytes(self._arriving)

    # --- the frame's bytes ---------------------------------------------------------------------------------

    def readable(self) -> int:
        """Return how many bytes of the frame may be read now; at least 1, for a loop asks even while reading rests."""
        granted = max(UNBOOKED_FRAME_BYTES, self.held_bytes)
        stored, missing = self._decoder.stored_bytes, self._decoder.missing_bytes
        return max(1, min(granted - stored, missing, LARGE_READ_BYTES))

    def covered(self) -> bool:
        """Charge for what has arrived; return whether the frame may go on now: be read further, or be handled.

        Otherwise the client is held until there is memory, or the frame was refused. Raises TooManyFields or
        MalformedFrame for a command that must not be decoded and has no answer.
        """
        arriving = self._arriving
        if arriving is None:
            return True
        stored = self._decoder.stored_bytes
        arriving.rate.received(self._services.loop.time(), stored - arriving.rate.size)
        if arriving.refuse is not None:
            if stored >= UNBOOKED_FRAME_BYTES:
                self._refuse_stored(arriving, arriving.refuse)
            else:
                self._await_bytes(arriving)
            return True
        if self._is_refused(arriving):
            return True
        if not self._try_charge(arriving, memory_for(stored, arriving.head.frame_bytes, self.held_bytes)):
            step = memory_for(stored, arriving.head.frame_bytes, self.held_bytes, STEP_PART)
            self._sender.hold(Hold.LARGE_FRAME)
            self._sender.scope.start(self._wait(arriving, step))
            return False
        if stored >= arriving.head.frame_bytes:
            self._arrived()
        else:
            self._await_bytes(arriving)
        return True

    def _is_refused(self, arriving: _Arriving) -> bool:
        """Count the command's fields as far as they have come; refuse a request that would grow when it is decoded."""
        buffer, start, end = self._decoder.stored_command()
        try:
            arriving.walker.walk(buffer, start, end, len(buffer))
        except TooManyFields as error:
            assert arriving.head.command_type is not None
            self._sender.refuse_fields(arriving.head.command_type, buffer[start : start + UNBOOKED_FRAME_BYTES], error)
            self._pass_over()
            return True
        return False

    @property
    def _network(self) -> str:
        return host_network(self._sender.client_address)

    def _try_charge(self, arriving: _Arriving, needed: int) -> bool:
        if needed <= self.held_bytes:
            return True
        if self.permit is not None:
            return self.permit.try_update(needed)
        self.permit = arriving.memory.try_acquire(max(needed, arriving.place), key=self._network)
        return self.permit is not None

    async def _wait(self, arriving: _Arriving, needed: int) -> None:
        """Wait for memory; then read on, or pass the frame over with an error."""
        loop, memory, seconds = self._services.loop, arriving.memory, arriving.patience_seconds
        since = loop.time()
        # Not before this task runs: the watch could look before, and find nobody in line.
        self._services.uploads.wait_began()
        try:
            if self.permit is not None:
                await self.permit.update(needed, timeout_seconds=seconds)
            else:
                size = max(needed, arriving.place)
                self.permit = await memory.acquire(size, key=self._network, timeout_seconds=seconds)
        except PermitAcquireError as error:
            self._refuse_memory(arriving, error)
        arriving.patience_seconds -= loop.time() - since
        self._sender.unhold(Hold.LARGE_FRAME)

    def _refuse_memory(self, arriving: _Arriving, error: PermitAcquireError) -> None:
        head, sender = arriving.head, self._sender
        command = CommandType(head.command_type).name if head.command_type is not None else "?"
        stage = Stage.HANDSHAKE if arriving.memory is self._services.handshakes else Stage.DIRECT
        self._services.requests.refusals.note(error, stage, arriving.memory, sender.name, command)
        request_id: int | None = _request_id(head)
        if request_id == commands.REQUEST_ID_NONE:
            request_id = self._stored_request_id(arriving)
        if request_id is None:
            sender.close(DisconnectCause.MEMORY_LIMIT)
            return
        assert head.command_type is not None
        sender.output.send(refusal(head.command_type, request_id, ServerError.TooManyRequests, DIRECT_REFUSAL))
        self._pass_over()

    def _pass_over(self) -> None:
        """Drop what has come of the frame, and read its rest without storing it."""
        self._decoder.skip()
        self.close()

    # --- the frame's clock ---------------------------------------------------------------------------------

    def _await_bytes(self, arriving: _Arriving) -> None:
        """Start the clock: a client that sends a frame drop by drop would keep its memory for as long as it likes."""
        loop = self._services.loop
        now = loop.time()
        arriving.rate.started(now)
        if arriving.clock is None:
            left = max(0.0, arriving.seconds - arriving.rate.waited_seconds(now))
            arriving.clock = loop.call_later(left, self._late)

    def _late(self) -> None:
        """End a client whose frame took too long; time in which the frame waited for memory does not count."""
        arriving, loop = self._arriving, self._services.loop
        if arriving is None:
            return
        left = arriving.seconds - arriving.rate.waited_seconds(loop.time())
        arriving.clock = None
        if left <= 0:
            self._sender.abort(DisconnectCause.READ_TIMEOUT)
        elif arriving.rate.awaited:
            arriving.clock = loop.call_later(left, self._late)

    def _arrived(self) -> None:
        """Stop the clock and the watch: the frame is whole, refused, or its client is gone."""
        arriving, self._arriving = self._arriving, None
        if arriving is None:
            return
        self._services.uploads.discard(self)
        if arriving.clock is not None:
            arriving.clock.cancel()


def _request_id(head: FrameHead) -> int:
    """Return the request id in a large frame's head, if its command has one and it stands first."""
    kind = head.command_type
    # The number that stands first is in some commands that of a producer or consumer.
    if kind is None or head.request_id is None or request_id_number(kind) != 1:
        return commands.REQUEST_ID_NONE
    return head.request_id
