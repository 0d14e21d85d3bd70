"""CONNECT to the target of a client before a relay joins both connections, and CONNECT as a probe.

A port that is open proves no broker: a server of another protocol accepts connections, too, and so does one that hangs.
So a broker that is not known to be down is probed with CONNECT and the proxy's own credentials.

The other side may be any listener that a client names, and there may be as many as there are clients. So its answer is
small, its challenges are counted, and what it sends is handled in turns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from socket import socket
from typing import Final

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import MalformedFrame, ProtocolError, ServerError
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, Role, Verdict
from proxy.brokers.connect_frames import ConnectFrames
from proxy.brokers.dialer import Dialer
from proxy.brokers.endpoint import FRAMES_PER_TURN, MOST_CHALLENGES, BrokerEndpoint, goes_on_asking
from proxy.brokers.target import BrokerAddress, CheckedTarget
from proxy.core.errors import (
    BrokerNotReady,
    BrokerUnavailable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    RequestFailed,
    protocol_cause,
)
from proxy.core.loop_budget import TASK_SECONDS, LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer

# The largest answer to CONNECT: part of what a connection may hold without a permit (docs/memory.md). CONNECTED with
# every field that is known has less than 100 bytes, a refusal is a sentence, and a challenge names a method: the proxy
# has no SASL, whose challenges carry more (those of DIGEST-MD5 2 KiB at most, RFC 2831).
MAX_ANSWER_BYTES: Final = 4096
# A read that filled its buffer, with its frames.
READ_SECONDS: Final = 0.001
_EARLY: Final = "the broker ended the connection before CONNECTED"
_LATE: Final = "the proxy's own credentials did not come in time"
_OF_IDENTITY: Final = frozenset({ServerError.AuthenticationError, ServerError.AuthorizationError})


class BrokerHandshake(BrokerEndpoint):
    """Sends CONNECT and waits for the answer: `heard` is CONNECTED, or None for a challenge, which `respond` answers.

    `heard` fails with RequestFailed or ConnectionClosed.
    """

    __slots__ = ("_connect_frame", "_decoder", "_state", "heard")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        loop_budget: LoopBudget,
        connect_frame: bytes,
    ) -> None:
        super().__init__(loop, shared, hangup, loop_budget)
        self._connect_frame = connect_frame
        self._decoder = FrameDecoder(MAX_ANSWER_BYTES)
        self._state = ConnectionState(Role.BROKER)
        self.heard: asyncio.Future[pb.CommandConnected | None] = loop.create_future()

    async def converse(self, answer: Callable[[], Awaitable[bytes]]) -> pb.CommandConnected:
        """Answer the broker's challenges until its CONNECTED, and return that.

        Raise the errors of `heard` and `answer`, and RequestFailed for a broker that goes on asking.
        """
        for _ in range(MOST_CHALLENGES):
            if (connected := await self.heard) is not None:
                return connected
            # A broker that sends challenges but reads no answers must not fill the write buffer.
            await self.drained()
            self.respond(await answer())
        if (connected := await self.heard) is None:
            raise goes_on_asking()
        return connected

    def adopt(self, transport: asyncio.Transport) -> None:
        """Send CONNECT as soon as the connection is open."""
        super().adopt(transport)
        self.write(self._connect_frame)
        self._connect_frame = b""

    def data_arrived(self, count: int) -> None:
        """Wait for CONNECTED; the bytes after it belong to the client."""
        self._decoder.receive_data(self._shared.small[:count])
        # A transport may deliver once more after a pause.
        if not self._behind and not self.heard.done():
            if self._loop_budget.spent():
                self._fall_behind()
            else:
                self._process()
        if count >= SMALL_READ_BYTES:
            self.rest(self._loop_budget, READ_SECONDS)

    def respond(self, frame: bytes) -> None:
        """Answer a challenge; `heard` is then the broker's next answer."""
        self.heard = self.loop.create_future()
        if self.cause is not None:
            self._fail(self.closed(self.cause, _EARLY))
            return
        self.write(frame)
        self.resume_reading()
        if self._decoder.stored_bytes:
            # Here at once, a read full of challenges would be answered in one step of one task.
            self._fall_behind()

    def _process(self) -> None:
        decoder, budget, frames = self._decoder, self._loop_budget, 0
        try:
            while not self.heard.done():
                pings, _ = decoder.take_keep_alives()
                if pings:
                    self.answer_ping()
                event = decoder.next_event()
                if not isinstance(event, Frame):
                    return
                self._on_frame(event)
                frames += 1
                more = decoder.stored_bytes and not self.heard.done()
                if more and (frames >= FRAMES_PER_TURN or budget.spent()):
                    self._fall_behind()
                    return
        except ProtocolError as error:
            self.abort(protocol_cause(error))

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Return the transport and the bytes after CONNECTED, for a relay; raise ConnectionClosed if it was lost."""
        self.write_deferred_pong()
        transport = self.detach()
        return transport, self._decoder.take_rest()

    def lost(self, cause: DisconnectCause) -> None:
        """Fail the handshake, unless its answer had come and waited for a turn: who refuses CONNECT closes then."""
        if self._behind:
            self._process()
        if not self.heard.done():
            self._fail(self.closed(cause, _EARLY))

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
            # The task that waits for this goes on in the next iteration of the loop.
            self._loop_budget.charge(TASK_SECONDS)
            self.heard.set_result(command.connected if command.type == CommandType.CONNECTED else None)
        elif command.type == CommandType.ERROR:
            self._loop_budget.charge(TASK_SECONDS)
            self._fail(RequestFailed(command.error.error, command.error.message))

    def _fail(self, error: Exception) -> None:
        self.heard.set_exception(error)
        self.heard.exception()
        self.abort(DisconnectCause.BROKER_REFUSED)


class ConnectProbe:
    """Probes configured brokers, which may get the proxy's own credentials; `make` builds a handshake for a frame.

    `check` is the gate of configured brokers: an address that a name had until lately gets no credentials.

    A probe speaks for no client, so brokers judge the proxy's own credentials only, whatever they want of clients
    (`authenticateOriginalAuthData` asks for nothing without an original principal: Pulsar's ServerCnx).
    """

    def __init__(
        self,
        dialer: Dialer,
        frames: ConnectFrames,
        make: Callable[[bytes], BrokerHandshake],
        check: Callable[[BrokerAddress], Awaitable[CheckedTarget]],
        *,
        authentication: bool,
    ) -> None:
        self._dialer = dialer
        self._frames = frames
        self._make = make
        self._check = check
        self._authentication = authentication

    @property
    def timeout_seconds(self) -> float:
        """Return the time limit of a connection, and of the answer to CONNECT."""
        return self._dialer.timeout_seconds

    async def open(self, broker: BrokerAddress, addresses: Sequence[str], timeout_seconds: float) -> socket:
        """Open a TCP connection to a broker that is down, as `Dialer.open` does."""
        return await self._dialer.open(broker, addresses, timeout_seconds)

    async def look(self, broker: BrokerAddress, addresses: Sequence[str]) -> None:
        """Return when the broker has accepted CONNECT, or refused only that no client's role came with it.

        Raise BrokerUnavailable for a broker that cannot be used; RequestFailed if the broker refuses the proxy's
        identity, and CredentialsUnavailable if the proxy lacks its own: both say little about the broker.
        """
        try:
            async with asyncio.timeout(self.timeout_seconds):
                frame = await self._frames.for_requests(None)
        except (CredentialsUnavailable, TimeoutError) as error:
            # The port and TLS can still be tried.
            await self._dialer.look(broker, addresses)
            raise CredentialsUnavailable(str(error) or _LATE) from error
        handshake = await self._dialer.connect(await self._check(broker), partial(self._make, frame))
        try:
            await self._hear(broker, handshake)
        except TimeoutError:
            seconds = f"{self.timeout_seconds:g} s (brokerProxyConnectTimeoutMs)"
            raise BrokerUnavailable(f"broker {broker} did not answer CONNECT within {seconds}") from None
        except ConnectionClosed as error:
            raise BrokerUnavailable(f"broker {broker} did not answer CONNECT: {error}") from error
        except RequestFailed as error:
            self._frames.refused(broker, error, None)
            raise RequestFailed(error.code, f"broker {broker} refuses the proxy: {error.message}") from error
        finally:
            handshake.abort(DisconnectCause.IDLE)

    async def _hear(self, broker: BrokerAddress, handshake: BrokerHandshake) -> None:
        """Return when the broker has accepted CONNECT, or refused only a missing role; answer its challenges.

        Raise RequestFailed if it refuses the proxy's identity, or if a challenge cannot be met: a client's identity
        would not help there, because a broker asks only for the proxy's own.
        """
        ends, answered = asyncio.get_running_loop().time() + self.timeout_seconds, 0
        while not await self._accepted(broker, handshake, ends):
            if answered == MOST_CHALLENGES:
                raise goes_on_asking()
            answered += 1
            try:
                async with asyncio.timeout_at(ends):
                    frame = await self._frames.answer()
            except TimeoutError as error:
                raise CredentialsUnavailable(_LATE) from error
            handshake.respond(frame)

    async def _accepted(self, broker: BrokerAddress, handshake: BrokerHandshake, ends: float) -> bool:
        """Return whether the broker's next answer accepts the proxy, False for a challenge; raise the errors of
        `_hear`, and TimeoutError.
        """
        try:
            async with asyncio.timeout_at(ends):
                if await handshake.heard is not None:
                    return True
                # As for a relay: a broker that reads no answers must not fill the write buffer.
                await handshake.drained()
                return False
        except RequestFailed as error:
            if error.code not in _OF_IDENTITY:
                raise BrokerNotReady(f"broker {broker} refuses CONNECT: {error.code}: {error.message}") from error
            # A role of the broker's proxyRoles may not come without a client's role, which a probe does not have.
            if error.code == ServerError.AuthorizationError and self._authentication:
                return True
            raise
