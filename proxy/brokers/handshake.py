"""CONNECT to the target of a client, before a relay joins both connections."""

import asyncio
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import MalformedFrame, ProtocolError
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, Role, Verdict
from proxy.brokers.endpoint import BrokerEndpoint
from proxy.core.errors import ConnectionClosed, DisconnectCause, RequestFailed, protocol_cause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer

MAX_HANDSHAKE_FRAME_BYTES: Final = 64 * 1024
# A read that filled its buffer, with its frames.
READ_SECONDS: Final = 0.001


class BrokerHandshake(BrokerEndpoint):
    """Sends CONNECT and waits for the answer: `heard` is CONNECTED, or a challenge for `respond`.

    `heard` fails with RequestFailed or ConnectionClosed.
    """

    __slots__ = ("_connect_frame", "_decoder", "_loop_budget", "_state", "heard")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        connect_frame: bytes,
    ) -> None:
        super().__init__(loop, shared, hangup)
        self._loop_budget = loop_budget
        self._connect_frame = connect_frame
        self._decoder = FrameDecoder(MAX_HANDSHAKE_FRAME_BYTES)
        self._state = ConnectionState(Role.BROKER)
        self.heard: asyncio.Future[pb.BaseCommand] = loop.create_future()

    def adopt(self, transport: asyncio.Transport) -> None:
        """Send CONNECT as soon as the connection is open."""
        super().adopt(transport)
        self.write(self._connect_frame)
        self._connect_frame = b""

    def data_arrived(self, count: int) -> None:
        """Wait for CONNECTED; the bytes after it belong to the client."""
        self._decoder.receive_data(self._shared.small[:count])
        self._process()
        if count >= SMALL_READ_BYTES:
            self.rest(self._loop_budget, READ_SECONDS)

    def respond(self, frame: bytes) -> None:
        """Answer a challenge; `heard` is then the broker's next answer."""
        self.heard = self.loop.create_future()
        if self.cause is not None:
            self._fail(ConnectionClosed(self.cause, "the broker ended the connection before CONNECTED"))
            return
        self.write(frame)
        self._process()
        if not self.heard.done():
            self.resume_reading()

    def _process(self) -> None:
        try:
            while not self.heard.done():
                pings, _ = self._decoder.take_keep_alives()
                if pings:
                    self.answer_ping()
                event = self._decoder.next_event()
                if not isinstance(event, Frame):
                    return
                self._on_frame(event)
        except ProtocolError as error:
            self.abort(protocol_cause(error))

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Return the transport and the bytes after CONNECTED, for a relay; raise ConnectionClosed if it was lost."""
        self.write_deferred_pong()
        transport = self.detach()
        return transport, self._decoder.take_rest()

    def lost(self, cause: DisconnectCause) -> None:
        """Fail the handshake."""
        if not self.heard.done():
            self._fail(ConnectionClosed(cause, "the broker ended the connection before CONNECTED"))

    def _on_frame(self, frame: Frame) -> None:
        kind = frame.head.command_type
        if kind is None or self._state.judge(kind) is Verdict.CLOSE:
            raise MalformedFrame("the broker sent something else than an answer to CONNECT")
        if kind == CommandType.PING:
            self.answer_ping()
            return
        command = commands.decode_command(frame.command)
        if command.type in (CommandType.CONNECTED, CommandType.AUTH_CHALLENGE):
            # Pausing here keeps the bytes that follow in the kernel until the relay reads them.
            self.pause_reading()
            self.heard.set_result(command)
        elif command.type == CommandType.ERROR:
            self._fail(RequestFailed(command.error.error, command.error.message))

    def _fail(self, error: Exception) -> None:
        self.heard.set_exception(error)
        self.heard.exception()
        self.abort(DisconnectCause.BROKER_REFUSED)
