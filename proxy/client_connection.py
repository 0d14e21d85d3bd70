"""One client: its handshake, the routing of its requests, and the bounds on what it may have under way.

Reading stops while the client may not go on: too many requests outstanding, answers it does not take, a large frame
that waits for memory, or a broker being connected for it. Frames are judged by the state table alone; every request
gets exactly one answer or the connection ends with a named cause.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, Protocol

from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.command_type import CommandType, request_id_field
from protocol.errors import MalformedFrame, ProtocolError, ServerError, UnexpectedCommand
from protocol.frames import Frame, FrameHead
from protocol.framing import FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, Role, State, Verdict
from proxy.charging import Charging
from proxy.client_requests import REQUESTS, ClientRequests, RequestServices
from proxy.counters import Counters
from proxy.direct_mode import DirectMode, DirectRefused
from proxy.errors import DIRECT_REFUSAL, ConnectionClosed, DisconnectCause, protocol_cause
from proxy.hangup import HangupWatcher
from proxy.output import Output
from proxy.refusals import Stage
from proxy.relay import Relay
from proxy.send_buffers import SendBuffers
from proxy.tasks import TaskScope
from proxy.transport import LEFT_TO_THE_KERNEL_BYTES, Endpoint, SharedReadBuffer, peer_name
from proxy.turns import Turns
from proxy.write_watch import WriteWatch

MAX_HANDSHAKE_FRAME_BYTES: Final = 64 * 1024
# Larger frames of a client wait for a direct permit before their body is read.
UNBOOKED_FRAME_BYTES: Final = 4096
# While a large frame is handled it is there as received bytes, as a command and as the forwarded frame.
LARGE_FRAME_COPIES: Final = 3
LARGE_COMMANDS: Final = frozenset({CommandType.CONNECT, CommandType.GET_OR_CREATE_SCHEMA})
FRAME_HEADROOM_BYTES: Final = 10 * 1024
# Where a command's type stands in a frame, behind two lengths and the tag of its field.
_TYPE_AT: Final = 9
_TYPE_TAG: Final = 0x08


class Hold(IntFlag):
    """Why a client is not being read."""

    OUTSTANDING = 1
    OUTPUT = 2
    LARGE_FRAME = 4
    CONNECTING = 8
    TURN = 16


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client connection may do, in bytes, requests and seconds; a large frame must be whole in time."""

    max_frame_bytes: int
    max_message_bytes: int
    max_outstanding: int
    send_buffer_bytes: int
    frame_seconds: float
    keep_alive: bool


class SessionRegistry(Protocol):
    """What a client connection tells the list of all client connections."""

    def handshake_done(self, session: "ClientConnection") -> None:
        """Hear that the client's CONNECT was accepted."""

    def ended(self, session: "ClientConnection", cause: DisconnectCause) -> None:
        """Hear that the connection is gone."""

    def became_relay(self, session: "ClientConnection", relay: Relay) -> None:
        """Hear that the client's socket now belongs to `relay`."""

    def relay_ended(self, relay: Relay, cause: DisconnectCause) -> None:
        """Hear that a relayed client is gone."""


@dataclass(slots=True)
class ClientServices:
    """Everything that client connections share; `limits` is replaced when the configuration changes."""

    loop: asyncio.AbstractEventLoop
    shared: SharedReadBuffer
    hangup: HangupWatcher
    counters: Counters
    limits: ClientLimits
    direct: AsyncSemaphore
    requests: RequestServices
    direct_mode: DirectMode
    sessions: SessionRegistry
    server_version: str
    writes: WriteWatch
    turns: Turns
    charging: Charging
    send_buffers: SendBuffers


class ClientConnection(Endpoint):
    """Speak Pulsar's protocol with one client."""

    __slots__ = (
        "_awaits_pong",
        "_decoder",
        "_deferred",
        "_frame_clock",
        "_heard",
        "_holds",
        "_large_permit",
        "_processing",
        "_requests",
        "_scope",
        "_send_buffer_bytes",
        "_services",
        "_state",
        "_target",
        "client_address",
        "name",
        "output",
        "principal",
    )

    def __init__(self, services: ClientServices, client_address: str, target: str = "") -> None:
        super().__init__(services.loop, services.shared, services.hangup)
        self._services = services
        # On a port that belongs to one broker: clients that look up by HTTP name none in their CONNECT.
        self._target = target
        self._decoder = FrameDecoder(MAX_HANDSHAKE_FRAME_BYTES, announce_above=UNBOOKED_FRAME_BYTES)
        self._state = ConnectionState(Role.CLIENT)
        self._scope = TaskScope(self.crashed)
        self._holds = Hold(0)
        self._processing = False
        self._deferred = False
        self._awaits_pong = False
        self._heard = False
        self._large_permit: Permit | None = None
        self._frame_clock: asyncio.TimerHandle | None = None
        self._send_buffer_bytes = 0
        self.output = Output(self, services.direct, services.writes)
        self.client_address = client_address
        self.name = client_address
        # No authentication yet: all clients are one principal.
        self.principal: Hashable = None
        self._requests = ClientRequests(self, services.requests, self._scope, self._fewer_requests)

    # --- what the services need of a client (requester.Requester) ------------------------------

    @property
    def max_frame_bytes(self) -> int:
        """Give the largest frame a Pulsar client accepts under `maxMessageSize`."""
        return self._services.limits.max_message_bytes + FRAME_HEADROOM_BYTES

    @property
    def gone(self) -> bool:
        """Tell whether the connection has ended."""
        return self.cause is not None

    @property
    def _charged(self) -> Hashable:
        """Say who is charged for memory that is about no namespace."""
        return self._services.charging.key(self, None)

    # --- what the sessions need of a client -------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Tell whether requests are under way."""
        return self._requests.outstanding > 0 or self.output.pending_bytes > 0

    @property
    def connected(self) -> bool:
        """Tell whether the client's CONNECT was accepted."""
        return self._state.state not in (State.INIT, State.CONNECTING)

    def tick(self, now: float) -> None:
        """Once per keep-alive interval: PING a client that was silent since the last time, end one that still is.

        Without keep-alive the read timeout does the same without a PING, its half at a time.
        """
        if self._state.state is not State.LOOKUP or not self.reading:
            return
        if self._heard or self.output.moved():
            self._heard = False
        elif self._awaits_pong:
            limits = self._services.limits
            self.abort(DisconnectCause.KEEP_ALIVE_TIMEOUT if limits.keep_alive else DisconnectCause.READ_TIMEOUT)
        else:
            self._awaits_pong = True
            if self._services.limits.keep_alive:
                self.output.send(commands.PING_FRAME)

    def limits_changed(self) -> None:
        """Hear that the limits may be others: read on if they allow it, and measure silence afresh.

        Otherwise a PING of just now would have to be answered before the next turn of a shorter interval.
        """
        self._awaits_pong = False
        self._heard = True
        self._fewer_requests()

    # --- socket -----------------------------------------------------------------------------------

    def adopt(self, transport: asyncio.Transport) -> None:
        """Learn the client's name from its transport."""
        super().adopt(transport)
        self.name = peer_name(transport)

    def read_place(self) -> memoryview:
        """Read little at a time, but for a large frame that has its permit; never beyond that frame's end."""
        if self._decoder.storing:
            return self._shared.large[: self._decoder.missing_bytes]
        return self._shared.small

    def data_arrived(self, count: int) -> None:
        """Decode and route what has come."""
        self._services.counters.binary_bytes += count
        self._awaits_pong = False
        self._heard = True
        deferrable = count > _TYPE_AT and not self._decoder.stored_bytes and self._begins_with_a_list_request()
        self._decoder.receive_data(self._shared.large[:count])
        if self._deferred:
            # One read is kept until its turn, not two.
            self._hold(Hold.TURN)
        elif deferrable and self._services.turns.enough():
            self._deferred = True
            self._services.turns.later(self._process_in_turn)
        else:
            self._process()

    def _begins_with_a_list_request(self) -> bool:
        place = self._shared.large
        return place[_TYPE_AT] == CommandType.GET_TOPICS_OF_NAMESPACE and place[_TYPE_AT - 1] == _TYPE_TAG

    def _process_in_turn(self) -> None:
        self._deferred = False
        if self._holds & Hold.TURN:
            self._unhold(Hold.TURN)
        else:
            self._process()

    def resume_writing(self) -> None:
        """Let the output know that all has left."""
        super().resume_writing()
        self.output.drained()

    def output_full(self) -> None:
        """Stop reading: the client does not take its answers."""
        self._hold(Hold.OUTPUT)

    def output_settled(self) -> None:
        """Read again: the client has taken its answers."""
        self._unhold(Hold.OUTPUT)

    def crashed(self, error: BaseException) -> None:
        """End this connection because of an exception of its own."""
        if isinstance(error, ProtocolError):
            self.abort(protocol_cause(error))
            return
        self._services.counters.internal_error(error, "client connection")
        self.abort(DisconnectCause.INTERNAL_ERROR)

    def lost(self, cause: DisconnectCause) -> None:
        """Cancel everything that was under way for this client: permits and queue places are free at once."""
        self._state.enter(State.CLOSED)
        self._scope.cancel()
        self._requests.close()
        self.output.close()
        self._stop_frame_clock()
        self._release_large_permit()
        self._services.send_buffers.take_back(self._send_buffer_bytes)
        self._services.sessions.ended(self, cause)

    def _stop_frame_clock(self) -> None:
        if self._frame_clock is not None:
            self._frame_clock.cancel()
            self._frame_clock = None

    def _release_large_permit(self) -> None:
        if self._large_permit is not None:
            self._large_permit.release()
            self._large_permit = None

    def stream_ended(self) -> None:
        """Leave with a client that will send no more: at once if anything is under way for it, else in its turn."""
        if self._requests.outstanding or self._state.state is not State.LOOKUP or not self._services.turns.enough():
            self._leave()
        else:
            self._services.turns.later_and_quick(self._leave)

    def _leave(self) -> None:
        # What the client does not read must not linger in the kernel.
        if self.kernel_queue_bytes() > LEFT_TO_THE_KERNEL_BYTES:
            self.abort(self.peer_closed_cause)
        else:
            self.close(self.peer_closed_cause)

    def close(self, cause: DisconnectCause) -> None:
        """End the connection, at once if bytes would linger that no permit owns any more."""
        self.output.flush()
        self._end(cause, abort=self.output.holds_memory)

    # --- holding back -----------------------------------------------------------------------------

    def _hold(self, reason: Hold) -> None:
        self._holds |= reason
        self.pause_reading()

    def _unhold(self, reason: Hold) -> None:
        if not self._holds & reason or self.cause is not None:
            return
        self._holds &= ~reason
        if not self._holds:
            self._process()
            if not self._holds:
                self.resume_reading()

    # --- frames -----------------------------------------------------------------------------------

    def _process(self) -> None:
        if self._processing:
            return
        self._processing = True
        try:
            while not self._holds and self.cause is None:
                event = self._decoder.next_event()
                if isinstance(event, Signal):
                    return
                if isinstance(event, Frame):
                    self._on_frame(event)
                elif isinstance(event, FrameAnnounced):
                    self._on_large_frame(event.head)
        except Exception as error:
            self.crashed(error)
        finally:
            self._processing = False

    def _on_frame(self, frame: Frame) -> None:
        self._stop_frame_clock()
        self._services.counters.binary_ops += 1
        kind = frame.head.command_type
        if kind is None:
            raise MalformedFrame("got a command whose type does not stand first")
        verdict = self._state.judge(kind)
        if verdict is Verdict.SERVE:
            command = commands.decode_command(frame.command)
            if kind in REQUESTS:
                self._on_request(command, frame.command)
            else:
                _SERVE[kind](self, command)
            self._release_large_permit()
        elif verdict is Verdict.REFUSE:
            self._refuse(kind, frame)
        elif verdict is Verdict.CLOSE:
            self.close(self._close_cause(kind))

    def _close_cause(self, kind: int) -> DisconnectCause:
        return DisconnectCause(self._state.close_cause(kind))

    def _refuse(self, kind: int, frame: Frame) -> None:
        try:
            request_id = commands.request_id_of(commands.decode_command(frame.command))
        except UnexpectedCommand:
            request_id = commands.REQUEST_ID_NONE
        self._send_refusal(kind, request_id)

    def _send_refusal(self, kind: int, request_id: int) -> None:
        self._services.counters.request_refused("not_served")
        name = CommandType(kind).name if kind in CommandType._value2member_map_ else f"number {kind}"
        message = f"command {name} is not served on a proxy's lookup connection"
        self.output.send(commands.error(request_id, ServerError.NotAllowedError, message))

    # --- large frames -----------------------------------------------------------------------------

    def _on_large_frame(self, head: FrameHead) -> None:
        """Book memory for a frame before its body is read; without memory now, stop reading and wait in the queue."""
        kind = head.command_type
        verdict = Verdict.CLOSE if kind is None else self._state.judge(kind)
        if kind is None or verdict is Verdict.CLOSE:
            self.close(DisconnectCause.MALFORMED_FRAME if kind is None else self._close_cause(kind))
        elif verdict is not Verdict.SERVE:
            self._decoder.skip()
            self._send_refusal(kind, self._request_id(head))
        elif kind not in LARGE_COMMANDS:
            self._services.counters.request_refused("too_large")
            # Nothing else is that long but a schema; a request that held direct memory would wait for its own answer's.
            self._decoder.skip()
            name = CommandType(kind).name
            message = f"command {name} has {head.frame_bytes} bytes, at most {UNBOOKED_FRAME_BYTES} are served"
            self.output.send(commands.error(self._request_id(head), ServerError.NotAllowedError, message))
        else:
            cost = head.frame_bytes * LARGE_FRAME_COPIES
            self._large_permit = self._services.direct.try_acquire(cost, key=self._charged)
            if self._large_permit is None:
                self._hold(Hold.LARGE_FRAME)
                self._scope.start(self._wait_for_large_frame(head, cost))
            else:
                self._store_large_frame()

    def _store_large_frame(self) -> None:
        self._decoder.store()
        # A client that sends it drop by drop would keep the permit for as long as it likes.
        self._frame_clock = self.loop.call_later(
            self._services.limits.frame_seconds, self.abort, DisconnectCause.READ_TIMEOUT
        )

    async def _wait_for_large_frame(self, head: FrameHead, cost: int) -> None:
        try:
            self._large_permit = await self._services.direct.acquire(cost, key=self._charged)
        except PermitAcquireError as error:
            command = CommandType(head.command_type).name if head.command_type is not None else "?"
            refusals = self._services.requests.refusals
            refusals.note(error, Stage.DIRECT, self._services.direct, self.name, command)
            request_id = self._request_id(head)
            if request_id == commands.REQUEST_ID_NONE:
                self.close(DisconnectCause.MEMORY_LIMIT)
                return
            self.output.send(commands.error(request_id, ServerError.TooManyRequests, DIRECT_REFUSAL))
            self._decoder.skip()
        else:
            self._store_large_frame()
        self._unhold(Hold.LARGE_FRAME)

    def _request_id(self, head: FrameHead) -> int:
        """Find the request id in a large frame's head, if its command has one and it stands first."""
        kind = head.command_type
        if kind is None or head.request_id is None or request_id_field(kind) is None:
            return commands.REQUEST_ID_NONE
        return head.request_id

    # --- handshake --------------------------------------------------------------------------------

    def _on_connect(self, command: pb.BaseCommand) -> None:
        connect = command.connect
        if connect.protocol_version < commands.OLDEST_CLIENT_VERSION:
            self.close(DisconnectCause.UNSUPPORTED_VERSION)
            return
        if connect.HasField("proxy_version"):
            # A client could otherwise speak for others: brokers trust what a proxy says (upstream refuses it too).
            self.refuse_connect(
                ServerError.NotAllowedError,
                "must not provide proxy_version",
                DisconnectCause.PROXY_VERSION_REFUSED,
            )
            return
        self._state.enter(State.CONNECTING)
        if self._target and not connect.HasField("proxy_to_broker_url"):
            connect.proxy_to_broker_url = self._target
        if connect.HasField("proxy_to_broker_url"):
            self._state.enter(State.CONNECTING_TO_BROKER)
            self._services.sessions.handshake_done(self)
            self._hold(Hold.CONNECTING)
            large, self._large_permit = self._large_permit, None
            self._scope.start(self._connect_to_broker(connect), large.release if large is not None else None)
        else:
            self._enter_lookup_mode(connect)

    def _enter_lookup_mode(self, connect: pb.CommandConnect) -> None:
        limits = self._services.limits
        self._state.enter(State.LOOKUP)
        self._decoder.max_frame_bytes = limits.max_frame_bytes
        assert self.transport is not None
        own_socket = self.transport.get_extra_info("socket")
        self._send_buffer_bytes = self._services.send_buffers.give(own_socket, limits.send_buffer_bytes)
        self._services.sessions.handshake_done(self)
        self.output.send(commands.connected_lookup(connect, self._services.server_version))

    async def _connect_to_broker(self, connect: pb.CommandConnect) -> None:
        """Join the client to the broker it names; from then on a relay owns both sockets."""
        direct_mode = self._services.direct_mode
        try:
            broker = await direct_mode.connect(connect)
        except DirectRefused as refused:
            self.refuse_connect(refused.code, refused.message, refused.cause)
            return
        try:
            broker_transport, to_client = broker.hand_over()
        except ConnectionClosed as closed:
            self.refuse_connect(ServerError.ServiceNotReady, f"the broker is gone: {closed}", closed.cause)
            return
        try:
            client_transport = self.detach()
        except ConnectionClosed:
            broker_transport.abort()
            return
        self._state.enter(State.RELAY)
        relay = direct_mode.join(self._services.sessions.relay_ended, key=self._charged)
        self._services.sessions.became_relay(self, relay)
        relay.start(client_transport, broker_transport, to_client, self._decoder.take_rest())

    def refuse_connect(self, code: int, message: str, cause: DisconnectCause) -> None:
        """Answer CONNECT with an ERROR about the connection, and end it."""
        self.output.send(commands.error(commands.REQUEST_ID_NONE, code, message))
        self.close(cause)

    # --- requests ---------------------------------------------------------------------------------

    def _on_ping(self, _: pb.BaseCommand) -> None:
        self.output.send(commands.PONG_FRAME)

    def _on_nothing(self, _: pb.BaseCommand) -> None:
        """Pass over a PONG, or credentials nobody asked for."""

    def _on_request(self, command: pb.BaseCommand, raw: bytes) -> None:
        """Serve a request; while too many are outstanding the client is not read."""
        if self._requests.serve(command, raw, self._large_permit):
            self._large_permit = None
        if self._requests.outstanding >= self._services.limits.max_outstanding:
            self._hold(Hold.OUTSTANDING)

    def _fewer_requests(self) -> None:
        # A lowered limit may be below what is outstanding still.
        if self._requests.outstanding < self._services.limits.max_outstanding:
            self._unhold(Hold.OUTSTANDING)


_SERVE: Final[dict[int, Callable[[ClientConnection, pb.BaseCommand], None]]] = {
    CommandType.CONNECT: ClientConnection._on_connect,
    CommandType.PING: ClientConnection._on_ping,
    CommandType.PONG: ClientConnection._on_nothing,
    CommandType.AUTH_RESPONSE: ClientConnection._on_nothing,
}
