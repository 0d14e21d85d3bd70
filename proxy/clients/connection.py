"""A client's connection: its handshake, the routing of its requests, and the bounds on its requests under way.

Reading stops while the client may not go on: too many requests outstanding, answers it does not take, a large frame
that waits for memory, or a broker being connected for it. Frames are judged by the state table alone; every request
gets exactly one answer or the connection ends with a named cause.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import MalformedFrame, ProtocolError, ServerError, TooManyFields
from protocol.field_walker import read_request_id
from protocol.frames import Frame
from protocol.framing import FrameAnnounced, FrameDecoder, Signal
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import HostPort, ProxyHeader
from protocol.states import ConnectionState, Role, State, Verdict
from proxy.clients.handshake import ClientHandshake
from proxy.clients.large_frames import MAX_HANDSHAKE_FRAME_BYTES, UNBOOKED_FRAME_BYTES, LargeFrames
from proxy.clients.requests import REFUSED, REQUESTS, ClientRequests, refusal
from proxy.clients.services import ClientServices
from proxy.core.errors import METHOD_BYTES, DisconnectCause, strangers_cause
from proxy.core.tasks import TaskScope, call_each, do_nothing
from proxy.net.output import Output
from proxy.net.transport import DISSOLVE_SECONDS, LEFT_TO_THE_KERNEL_BYTES, SMALL_READ_BYTES, peer_name
from proxy.requests.client import Client, Hold
from proxy.requests.lookups import LEAST_OUTSTANDING

_KEEP_ALIVES: Final = frozenset({CommandType.PING.value, CommandType.PONG.value})
_NAMES: Final = {kind.value: kind.name for kind in CommandType}
# The offset of a command's type in a frame: after two lengths and the tag of the field.
_TYPE_AT: Final = 9
_TYPE_TAG: Final = 0x08
# A read that filled its buffer, with the frames in it that are served at once.
READ_SECONDS: Final = 0.00005
# Commands that nobody answers may come in a burst that the allowed rate takes this long for.
UNANSWERED_BURST_SECONDS: Final = 1.0


class ClientConnection(Client):
    """Speak Pulsar's protocol with one client."""

    __slots__ = (
        "_asked",
        "_awaits_pong",
        "_decoder",
        "_handshake",
        "_header",
        "_heard",
        "_large",
        "_processing",
        "_requests",
        "_scope",
        "_services",
        "_state",
        "_unanswered_until",
        "client_address",
        "received_bytes",
        "target",
    )

    def __init__(
        self, services: ClientServices, client_address: str, header: ProxyHeader | None = None, target: str = ""
    ) -> None:
        super().__init__(services.loop, services.shared, services.hangup, services.loop_budget, client_address)
        self._services = services
        self._decoder = FrameDecoder(MAX_HANDSHAKE_FRAME_BYTES, announce_above=UNBOOKED_FRAME_BYTES)
        self._state = ConnectionState(Role.CLIENT)
        self._scope: TaskScope | None = None
        self._processing = self._awaits_pong = self._asked = self._heard = False
        self._unanswered_until = 0.0
        self._header = header if header is not None and header.source is not None else None
        # On a port that belongs to one broker: clients that look up by HTTP name none in their CONNECT.
        self.target = target
        self.output = Output(self, services.direct, services.writes)
        self.max_frame_bytes = services.limits.max_answer_bytes
        # The text of a network is one for all its connections; each accepted socket brings a text of its own.
        self.client_address = self.network if self.network == client_address else client_address
        self.received_bytes = 0
        self._requests = ClientRequests(self, services.requests)
        self._large = LargeFrames(self, services, self._decoder, self._state)
        self._handshake = ClientHandshake(self, services, self._decoder, self._state, self._large)

    # --- for its handshake and its requests --------------------------------------------------------

    @property
    def scope(self) -> TaskScope:
        """Return the scope of tasks that end with this client, made for the first: most clients need none."""
        if self._scope is None:
            self._scope = TaskScope(self.crashed)
        return self._scope

    @property
    def charged(self) -> Hashable:
        """Return the key that is charged for memory that concerns no namespace."""
        return self._services.fairness_keys.key(self, None)

    @property
    def certificate(self) -> bytes | None:
        """Return the client's verified certificate, DER; None without one."""
        found = self.transport.get_extra_info("peer_certificate") if self.transport is not None else None
        return found if isinstance(found, bytes) else None

    # --- for the sessions --------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Return whether requests are under way, frames unsent, or a broker is asked to take the client."""
        if self._state.state is State.CONNECTING_TO_BROKER:
            return True
        return self.outstanding > 0 or self.output.pending_bytes > 0

    @property
    def connected(self) -> bool:
        """Return whether the client's CONNECT was accepted."""
        return self._state.state not in (State.INIT, State.CONNECTING)

    @property
    def in_lookup_mode(self) -> bool:
        """Return whether the client's requests are served here."""
        return self._state.state is State.LOOKUP

    @property
    def held_bytes(self) -> int:
        """Count the bytes of the client's own permits: for a large frame, and for answers that it does not take."""
        return self.output.held_bytes + self._large.held_bytes

    def idle_since_asked(self) -> bool:
        """Return whether nothing is under way and nothing was asked for since the last call; False outside of lookup
        mode.
        """
        asked, self._asked = self._asked, False
        return not asked and self.in_lookup_mode and not self.busy and not self._decoder.stored_bytes

    def tick(self, now: float) -> None:
        """Send a PING to a client that was silent since the last call, end a client that still is (once per interval).

        Without keep-alive the read timeout does the same without a PING, its half at a time.
        """
        if self._state.state is not State.LOOKUP or not self.reading:
            if self._holds == Hold.COMMAND_BYTES and self._services.limits.keep_alive:
                # A PING of the client may stand behind the command that waits; what it is sent tells it as much.
                self.output.send(commands.PONG_FRAME)
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
        """Called when the limits may have changed: resume reading if they allow it, and measure silence afresh.

        Otherwise a PING sent just now would have to be answered within a shorter interval.
        """
        self._awaits_pong = False
        self._heard = True
        self.fewer_requests()

    def retire(self, now_or_never: bool) -> None:
        """End a connection that is old enough, once nothing is under way; `now_or_never`: take no more requests."""
        if self._state.state is not State.LOOKUP or self.cause is not None:
            return
        if not self.busy and (now_or_never or not self._decoder.stored_bytes):
            self.close(DisconnectCause.CONNECTION_AGE)
        elif now_or_never:
            self.hold(Hold.AGE)

    # --- socket -----------------------------------------------------------------------------------

    def adopt(self, transport: asyncio.Transport) -> None:
        """Adopt the transport, and set the client's name from it."""
        super().adopt(transport)
        if self._header is not None:
            self.name = str(self._header.source)
        elif transport.get_extra_info("peername"):
            # A client of a Unix socket keeps the name of its user.
            self.name = peer_name(transport)

    def origin(self) -> ProxyHeader | None:
        """Return the addresses of both ends of the connection, for brokers that are sent them; None otherwise."""
        if self._header is not None or self.transport is None or not self._services.direct_mode.tells_addresses:
            return self._header
        own, peer = (self.transport.get_extra_info(name) for name in ("sockname", "peername"))
        return ProxyHeader(HostPort.of(*peer[:2]), HostPort.of(*own[:2])) if own and peer else None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return little space at a time, but for a large frame as much as its permit covers."""
        if self._decoder.storing:
            return self._shared.large[: self._large.readable()]
        return self._shared.small

    def buffer_updated(self, nbytes: int) -> None:
        """Decode and route what has arrived; an exception here ends this connection and nothing else."""
        if self.cause is not None:
            return
        self._services.bytes_read.value += nbytes
        self.received_bytes += nbytes
        self._awaits_pong = False
        self._heard = True
        received, decoder = self._shared.large, self._decoder
        is_list_request = (
            nbytes > _TYPE_AT
            and not decoder.stored_bytes
            and received[_TYPE_AT] == CommandType.GET_TOPICS_OF_NAMESPACE
            and received[_TYPE_AT - 1] == _TYPE_TAG
        )
        try:
            decoder.receive_data(received[:nbytes])
            if self._deferred:
                # Already deferred once: stop reading, so that at most one read is buffered.
                self.hold(Hold.TURN)
            elif self._holds or (self._pass_keep_alives() and not decoder.stored_bytes):
                pass
            elif not self._budget.spent():
                self._process()
            else:
                self._await_turn(behind_lists=is_list_request)
            if nbytes >= SMALL_READ_BYTES:
                # The client has more to say, and each iteration of the loop hears one read of it.
                self.rest(self._budget, READ_SECONDS)
        except Exception as error:
            self.crashed(error)

    def resume_writing(self) -> None:
        """Called when every written byte has left: pass that on to the output."""
        super().resume_writing()
        self.output.drained()

    def output_full(self) -> None:
        """Stop reading: the client does not take its answers."""
        self.hold(Hold.OUTPUT)

    def output_settled(self) -> None:
        """Read again: the client has taken its answers."""
        self.unhold(Hold.OUTPUT)

    def crashed(self, error: BaseException) -> None:
        """End this connection because of an exception of its own."""
        if isinstance(error, ProtocolError):
            first = self._decoder.first_bytes(METHOD_BYTES) if self._state.state is State.INIT else b""
            self.abort(strangers_cause(first, error))
            return
        self._services.counters.internal_error(error, "client connection")
        self.abort(DisconnectCause.INTERNAL_ERROR)

    def lost(self, cause: DisconnectCause) -> None:
        """Cancel everything that was under way for this client; of thousands of requests, a few an iteration."""
        held = self._services.requests.lookups.request_bytes if self._holds & Hold.COMMAND_BYTES else None
        steps = (
            partial(self._state.enter, State.CLOSED), self.scope.cancel, self._requests.close,
            do_nothing if held is None else partial(held.leave, self), self.output.close, self._large.close,
            self._handshake.close, partial(self._services.sessions.ended, self, cause),
        )  # fmt: skip
        # If a step raises, each of the others gives back what it holds all the same.
        call_each(steps, partial(self._services.counters.internal_error, where="client connection"))
        self.loop.call_soon(self.dissolve)

    def dissolve(self) -> None:
        """Release what makes reference cycles of a client that is gone, which else only a full collection frees."""
        if self.transport is not None or len(self.scope) or self._requests.tasks:
            self.loop.call_later(DISSOLVE_SECONDS, self.dissolve)
            return
        self.output.dissolve()
        del self._handshake, self._large, self._requests, self._scope

    def stream_ended(self) -> None:
        """Leave with a client that will send no more."""
        self._in_turn(self._leave)

    def broke_off(self, cause: DisconnectCause) -> None:
        self._in_turn(partial(self.lost, cause))

    def _hung_up(self, gone: bool) -> None:
        self._in_turn(partial(super()._hung_up, gone))

    def _in_turn(self, leave: Callable[[], None]) -> None:
        """Call `leave`, in turns with others that leave; at once if the socket may become a relay's meanwhile."""
        if self._state.state is State.LOOKUP:
            self._services.requests.leaving.leave(leave)
        else:
            leave()

    def _leave(self) -> None:
        # Bytes that the client does not read must not linger in the kernel.
        if self.kernel_queue_bytes() > LEFT_TO_THE_KERNEL_BYTES:
            self.abort(self.peer_closed_cause)
        else:
            self.close(self.peer_closed_cause)

    def close(self, cause: DisconnectCause) -> None:
        """End the connection, at once if bytes would stay that no permit owns any more."""
        self.output.flush()
        self._end(cause, abort=self.output.holds_memory)

    # --- frames -----------------------------------------------------------------------------------

    def _process(self) -> None:
        if self._processing:
            return
        self._processing = True
        frames, decoder = 0, self._decoder
        self.output.gather()
        try:
            while not self._holds and self.cause is None:
                if self._pass_keep_alives():
                    continue
                if self._awaits_command_bytes():
                    return
                if decoder.storing and not self._large.covered():
                    self._waits_since = 0.0
                    return
                event = decoder.next_event()
                if isinstance(event, Signal):
                    self._waits_since = 0.0
                    return
                if isinstance(event, Frame):
                    self._on_frame(event)
                elif isinstance(event, FrameAnnounced):
                    self._large.on_head(event.head)
                frames += 1
                if decoder.stored_bytes and self._had_turn(frames):
                    self.hold(Hold.TURN)
                    self._await_turn()
        except Exception as error:
            # The frames before the broken frame have their answers.
            self.output.send_gathered()
            self.crashed(error)
        finally:
            self._processing = False
            self.output.send_gathered()

    def _awaits_command_bytes(self) -> bool:
        """Stop reading if the next command must wait for memory (`maxConcurrentLookupRequestMB`); return whether so."""
        held = self._services.requests.lookups.request_bytes
        if held is None or self._state.state is not State.LOOKUP:
            return False
        turn, self._command_turn = self._command_turn, False
        # Half a frame is read on, as it is of every client.
        if turn or held.admits(self) or not self._decoder.frame_is_next:
            return False
        self.hold(Hold.COMMAND_BYTES)
        held.wait(self)
        return True

    def _pass_keep_alives(self) -> bool:
        """Answer the PINGs and pass over the PONGs that come next, without decoding; return whether there were any."""
        if self._state.state is not State.LOOKUP or self._large.permit is not None:
            return False
        pings, pongs = self._decoder.take_keep_alives()
        if pings:
            self.output.send(commands.PONG_FRAME * pings)
        if pongs:
            self.output.ponged()
            self._pass_unanswered(pongs)
        self._services.commands.value += pings + pongs
        return pings + pongs > 0

    def _pass_unanswered(self, count: int) -> None:
        """Pass over commands that nobody answers; a client that sends too many of them is read on later.

        No answer that the client does not take stops such a client, and it may be one with a broken loop: so it is
        slowed down, not closed.
        """
        rate, now = self._services.limits.unanswered_per_second, self.loop.time()
        self._unanswered_until = max(self._unanswered_until, now) + count / rate
        wait = self._unanswered_until - now - UNANSWERED_BURST_SECONDS
        if wait > 0 and not self._holds & Hold.RATE:
            self.hold(Hold.RATE)
            self.loop.call_later(wait, self.unhold, Hold.RATE)

    def _on_frame(self, frame: Frame) -> None:
        large = self._large.permit
        self._services.commands.value += 1
        kind = frame.head.command_type
        if kind is None:
            raise MalformedFrame("got a command whose type does not stand first")
        verdict = self._state.judge(kind)
        if kind in _KEEP_ALIVES and verdict is Verdict.SERVE and large is None:
            # Written in an unusual way: their content, if any, is not looked at.
            if kind == CommandType.PING:
                self.output.send(commands.PONG_FRAME)
            else:
                self.output.ponged()
                self._pass_unanswered(1)
        elif verdict is Verdict.SERVE:
            try:
                command = commands.decode_command(frame.command)
            except TooManyFields as error:
                self.refuse_fields(kind, frame.command, error)
                self._large.handled()
                return
            if kind in REQUESTS:
                self._asked = True
                if self._requests.serve(command, frame.command, large, self._waits_since) and large is not None:
                    self._large.detach_permit()
                # While too many requests are outstanding the client is not read.
                if self._has_enough:
                    self.hold(Hold.OUTSTANDING)
            else:
                self._serve(kind, command)
            if large is not None:
                self._large.handled()
        elif verdict is Verdict.REFUSE:
            request_id = read_request_id(kind, frame.command)
            self.refuse(kind, commands.REQUEST_ID_NONE if request_id is None else request_id)
        elif verdict is Verdict.CLOSE:
            self.close(DisconnectCause(self._state.close_cause(kind)))

    def refuse(self, kind: int, request_id: int) -> None:
        """Answer a command that is not served here."""
        self._services.counters[REFUSED]["not_served"] += 1
        name = _NAMES.get(kind) or f"number {kind}"
        message = f"command {name} is not served on a proxy's lookup connection"
        self.output.send(commands.error(request_id, ServerError.NotAllowedError, message))

    def refuse_fields(self, kind: int, command: bytes | bytearray, error: TooManyFields) -> None:
        """Answer a request that would grow when it is decoded; raise `error` for any other command."""
        request_id = read_request_id(kind, command)
        if kind not in REQUESTS or request_id is None:
            raise error
        self._services.counters[REFUSED]["properties"] += 1
        message = f"the request has more than {error.most} {error.what}, at most {error.most} are served"
        self.output.send(refusal(kind, request_id, ServerError.NotAllowedError, message))

    # --- requests ---------------------------------------------------------------------------------

    def _serve(self, kind: int, command: pb.BaseCommand) -> None:
        """Serve commands other than requests; a PONG, and credentials that nobody asked for, are passed over."""
        if kind == CommandType.CONNECT:
            self._handshake.begin(command.connect)
        elif kind == CommandType.PING:
            self.output.send(commands.PONG_FRAME)
        else:
            if kind == CommandType.AUTH_RESPONSE:
                self._handshake.auth_response(command.authResponse)
            self._pass_unanswered(1)

    def fewer_requests(self) -> None:
        """Resume reading if the client has less under way than enough."""
        # A lowered limit may be below the number still outstanding.
        if self._holds and not self._has_enough:
            self.unhold(Hold.OUTSTANDING)
        if self._holds & Hold.COMMAND_BYTES and (held := self._services.requests.lookups.request_bytes) is not None:
            held.answered(self)

    @property
    def _has_enough(self) -> bool:
        """Return whether the client must not be read: enough requests are outstanding, or enough lists wait."""
        services, outstanding = self._services, self.outstanding
        if self._requests.enough_waits or outstanding >= services.limits.max_outstanding:
            return True
        return outstanding >= LEAST_OUTSTANDING and services.requests.lookups.enough_for_one(outstanding)
