"""Direct mode: check the broker a client asks for, connect to it, and join the two.

Owns the order of the checks and what a client is told when one fails (upstream closes without a word where the broker
cannot be reached; here it gets an ERROR first).
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.broker_handshake import BrokerHandshake
from proxy.counters import Counters
from proxy.dialer import Dialer
from proxy.errors import (
    BrokerUnavailable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    RequestFailed,
    TargetRefused,
)
from proxy.hangup import HangupWatcher
from proxy.introductions import Introductions
from proxy.relay import Relay
from proxy.target import BrokerAddress, TargetValidator, parse_address, resolve
from proxy.transport import SharedReadBuffer
from proxy.watch_limits import WatchLimits
from proxy.watch_relay import WatchedRelay


class DirectRefused(Exception):
    """A client cannot be joined to the broker it asks for; says what it is told and how its connection ends."""

    def __init__(self, code: int, message: str, cause: DisconnectCause) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cause = cause


@dataclass(frozen=True, slots=True)
class JoinedBroker:
    """A broker that has sent CONNECTED, waiting for its relay."""

    handshake: BrokerHandshake
    connected_frame: bytes

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Give the broker's transport, and all bytes the client must get first."""
        transport, rest = self.handshake.hand_over()
        return transport, self.connected_frame + rest


class DirectMode:
    """Connect clients to brokers they name."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shared: SharedReadBuffer,
        hangup: HangupWatcher,
        counters: Counters,
        dialer: Dialer,
        validator: TargetValidator,
        default_broker: BrokerAddress,
        introductions: Introductions,
        read_timeout_seconds: float,
        watch: WatchLimits,
    ) -> None:
        self._loop = loop
        self._shared = shared
        self._hangup = hangup
        self._counters = counters
        self._dialer = dialer
        self._validator = validator
        self._default_broker = default_broker
        self._introductions = introductions
        self._read_timeout_seconds = read_timeout_seconds
        self._watch = watch

    async def connect(self, connect: pb.CommandConnect, principal: Hashable = None) -> JoinedBroker:
        """Open a connection to `proxy_to_broker_url` in the client's name; raises DirectRefused."""
        try:
            target, addresses = await self._target(connect.proxy_to_broker_url)
        except TargetRefused as refused:
            raise DirectRefused(
                ServerError.ServiceNotReady,
                f"target broker cannot be validated: {refused}",
                DisconnectCause.TARGET_REFUSED,
            ) from refused
        try:
            frame = await self._introductions.for_client(connect, principal)
            handshake = await self._dialer.connect(
                target, addresses, lambda: BrokerHandshake(self._loop, self._shared, self._hangup, frame)
            )
        except BrokerUnavailable as error:
            raise DirectRefused(ServerError.ServiceNotReady, str(error), DisconnectCause.BROKER_UNREACHABLE) from error
        except CredentialsUnavailable as error:
            raise _without_credentials(error) from error
        return await self._await_connected(handshake, target)

    def apply(self, read_timeout_seconds: float) -> None:
        """Change the read timeout of relays made from now on."""
        self._read_timeout_seconds = read_timeout_seconds

    def join(self, on_end: Callable[[Relay, DisconnectCause], None], *, key: Hashable = None) -> Relay:
        """Make the relay that will own both sockets; memory for its watch frames is asked for in the name of `key`."""
        common = (self._loop, self._shared, self._hangup, self._counters, self._read_timeout_seconds, on_end)
        return WatchedRelay(*common, watch=self._watch, key=key) if self._watch.enabled else Relay(*common)

    async def _target(self, url: str) -> tuple[BrokerAddress, list[str]]:
        if not url:
            # Newer clients ask for "any broker" with an empty name.
            return self._default_broker, await resolve(self._default_broker)
        target = replace(parse_address(url), tls=self._default_broker.tls)
        return target, await self._validator.resolve(target)

    async def _await_connected(self, handshake: BrokerHandshake, target: BrokerAddress) -> JoinedBroker:
        try:
            async with asyncio.timeout(self._dialer.timeout_seconds):
                connected = await self._converse(handshake)
        except TimeoutError:
            handshake.abort(DisconnectCause.BROKER_SILENT)
            raise DirectRefused(
                ServerError.ServiceNotReady,
                f"broker {target} did not answer CONNECT in time (brokerProxyConnectTimeoutMs)",
                DisconnectCause.BROKER_SILENT,
            ) from None
        except CredentialsUnavailable as error:
            handshake.abort(DisconnectCause.NO_BROKER_CREDENTIALS)
            raise _without_credentials(error) from error
        except RequestFailed as error:
            handshake.abort(DisconnectCause.BROKER_REFUSED)
            self._introductions.refused(target, error)
            raise DirectRefused(error.code, error.message, DisconnectCause.BROKER_REFUSED) from error
        except ConnectionClosed as error:
            raise DirectRefused(
                ServerError.ServiceNotReady, f"broker {target}: {error}", DisconnectCause.BROKER_CLOSED
            ) from error
        except BaseException:
            handshake.abort(DisconnectCause.CLIENT_CLOSED)
            raise
        if not handshake.open:
            # A hang-up may be dispatched in the same turn of the loop as CONNECTED.
            raise DirectRefused(
                ServerError.ServiceNotReady,
                f"broker {target} ended the connection behind CONNECTED",
                DisconnectCause.BROKER_CLOSED,
            )
        return JoinedBroker(
            handshake, commands.connected_direct(connected, self._introductions.versions.server_version)
        )

    async def _converse(self, handshake: BrokerHandshake) -> pb.CommandConnected:
        """Answer the broker's challenges until it says CONNECTED."""
        while (command := await handshake.heard).type == CommandType.AUTH_CHALLENGE:
            handshake.respond(await self._introductions.answer())
        return command.connected


def _without_credentials(error: CredentialsUnavailable) -> DirectRefused:
    return DirectRefused(ServerError.ServiceNotReady, str(error), DisconnectCause.NO_BROKER_CREDENTIALS)
