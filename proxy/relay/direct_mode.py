"""Direct mode: check the broker that a client asks for, connect to it, and make the relay of the two.

The order of the checks is here, and so are the errors that clients get. If a broker cannot be reached, upstream's proxy
closes the client's connection without an answer; this proxy sends an ERROR first.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.proxy_header import ProxyHeader, encode
from proxy.brokers.handshake import BrokerHandshake
from proxy.brokers.side import BrokerSide
from proxy.brokers.sockets import Sockets
from proxy.brokers.target import BrokerAddress, CheckedTarget, parse_address
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.errors import (
    BrokerUnavailable,
    BrokerUnreachable,
    ConnectionClosed,
    CredentialsUnavailable,
    DisconnectCause,
    NoSocket,
    RequestFailed,
    TargetInactive,
    TargetRefused,
    TargetUnknown,
)
from proxy.relay.engine import Relay, RelayOrder
from proxy.relay.engines import RelayEngines
from proxy.telemetry.events.recorder import RequestOrigin


class DirectRefused(Exception):
    """A client cannot get the broker that it asks for: the ERROR it is sent, and the cause its connection ends with."""

    def __init__(self, code: int, message: str, cause: DisconnectCause) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.cause = cause


@dataclass(frozen=True, slots=True)
class JoinedBroker:
    """A broker connection that has sent CONNECTED and waits for its relay.

    `is_known` tells whether configuration or brokers have named this broker by now.
    """

    handshake: BrokerHandshake
    connected_frame: bytes
    is_known: Callable[[], bool]

    def hand_over(self) -> tuple[asyncio.Transport, bytes]:
        """Return the broker's transport, and the bytes that the client must get first."""
        transport, rest = self.handshake.hand_over()
        return transport, self.connected_frame + rest


class DirectMode:
    """Connects clients to the brokers that they name."""

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        side: BrokerSide,
        engines: RelayEngines,
    ) -> None:
        self._loop = core.loop
        self._shared = sockets.shared
        self._hangup = sockets.hangup
        self._loop_budget = core.loop_budget
        self._engines = engines
        self._dialer = side.dialer
        self._gate = side.gate
        self._brokers = side.brokers
        self._tls = core.config.tls_enabled_with_broker
        # The version of the PROXY header that is sent first; 0 sends none.
        self._header_version = core.config.proxy_header_version
        self._connect_frames = side.connect_frames
        self._read_timeout_seconds = core.config.seconds(Config.broker_proxy_read_timeout_ms)

    async def connect(
        self,
        connect: pb.CommandConnect,
        principal: Hashable = None,
        client: ProxyHeader | None = None,
        network: str = "",
    ) -> JoinedBroker:
        """Open a connection to `proxy_to_broker_url` on behalf of `principal`; raises DirectRefused.

        `client` is the PROXY header with the client's address for brokers. Names that clients make up take turns by the
        `network` of the client.
        """
        version = self._header_version
        preamble = encode(client or ProxyHeader(), version) if version else b""
        try:
            target, handshake = await self._dial(connect, principal, preamble, network)
        except TargetUnknown as unknown:
            # Clients look a topic up again before they connect again, after any error to CONNECT.
            raise DirectRefused(ServerError.ServiceNotReady, str(unknown), DisconnectCause.TARGET_UNKNOWN) from unknown
        except TargetInactive as inactive:
            raise DirectRefused(
                ServerError.ServiceNotReady, str(inactive), DisconnectCause.TARGET_REFUSED
            ) from inactive
        except TargetRefused as refused:
            raise DirectRefused(
                ServerError.ServiceNotReady,
                f"target broker cannot be validated: {refused}",
                DisconnectCause.TARGET_REFUSED,
            ) from refused
        except BrokerUnavailable as error:
            raise DirectRefused(ServerError.ServiceNotReady, str(error), DisconnectCause.BROKER_UNREACHABLE) from error
        except CredentialsUnavailable as error:
            raise _without_credentials(error) from error
        joined = await self._await_connected(handshake, target, principal)
        self._brokers.worked(target)
        return joined

    @property
    def tells_addresses(self) -> bool:
        """Return whether brokers get the address of a client, in a PROXY header."""
        return self._header_version > 0

    def apply(self, read_timeout_seconds: float) -> None:
        """Change the read time-out of relays made from now on."""
        self._read_timeout_seconds = read_timeout_seconds

    def join(
        self,
        client: asyncio.Transport,
        broker: asyncio.Transport,
        on_end: Callable[[Relay, DisconnectCause], None],
        *,
        key: Hashable,
        name: str,
        origin: RequestOrigin,
        network: Hashable,
    ) -> Relay:
        """Return the relay of two connections that nobody reads.

        `key` is charged for permits of its watch frames, which take turns by `network`.
        """
        order = RelayOrder(on_end, self._read_timeout_seconds, key, name, origin, network)
        return self._engines.join(client, broker, order)

    async def _dial(
        self, connect: pb.CommandConnect, principal: Hashable, preamble: bytes, network: str
    ) -> tuple[BrokerAddress, BrokerHandshake]:
        """Connect to the broker that CONNECT names, once the gate lets that broker have the proxy's credentials."""
        if not connect.proxy_to_broker_url:
            return await self._dial_any(await self._connect_frames.for_client(connect, principal), preamble)
        target = parse_address(connect.proxy_to_broker_url, tls=self._tls)
        checked = await self._gate.for_client(target, network)
        frame = await self._connect_frames.for_client(connect, principal)
        return target, await self._handshake(checked, frame, preamble)

    async def _dial_any(self, frame: Callable[[], bytes], preamble: bytes) -> tuple[BrokerAddress, BrokerHandshake]:
        """Connect to any broker, as newer clients ask for with an empty name; try a second broker after a failure."""
        broker = await self._brokers.pick()
        try:
            return broker, await self._reported(broker, frame, preamble)
        except BrokerUnavailable:
            broker = await self._brokers.pick(avoid=broker)
            return broker, await self._reported(broker, frame, preamble)

    async def _reported(self, broker: BrokerAddress, frame: Callable[[], bytes], preamble: bytes) -> BrokerHandshake:
        try:
            return await self._handshake(await self._gate.configured(broker), frame, preamble)
        except BrokerUnavailable as error:
            if not isinstance(error, NoSocket):
                answers_tcp = not isinstance(error, BrokerUnreachable)
                self._brokers.failed(broker, str(error), answers_tcp=answers_tcp)
            raise

    async def _handshake(self, checked: CheckedTarget, frame: Callable[[], bytes], preamble: bytes) -> BrokerHandshake:
        return await self._dialer.connect(
            checked,
            lambda: BrokerHandshake(self._loop, self._shared, self._hangup, self._loop_budget, frame()),
            preamble,
        )

    async def _await_connected(
        self, handshake: BrokerHandshake, target: BrokerAddress, principal: Hashable
    ) -> JoinedBroker:
        try:
            async with asyncio.timeout(self._dialer.timeout_seconds):
                connected = await handshake.converse(self._connect_frames.answer)
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
            self._connect_frames.refused(target, error, principal)
            raise DirectRefused(error.code, error.message, DisconnectCause.BROKER_REFUSED) from error
        except ConnectionClosed as error:
            raise DirectRefused(
                ServerError.ServiceNotReady, f"broker {target}: {error}", DisconnectCause.BROKER_CLOSED
            ) from error
        except BaseException:
            handshake.abort(DisconnectCause.CLIENT_CLOSED)
            raise
        if not handshake.open:
            # The loop may dispatch a hang-up in the same turn as CONNECTED.
            raise DirectRefused(
                ServerError.ServiceNotReady,
                f"broker {target} ended the connection behind CONNECTED",
                DisconnectCause.BROKER_CLOSED,
            )
        frame = commands.connected_direct(connected, self._connect_frames.versions.server_version)
        return JoinedBroker(handshake, frame, partial(self._gate.named, target))


def _without_credentials(error: CredentialsUnavailable) -> DirectRefused:
    return DirectRefused(ServerError.ServiceNotReady, str(error), DisconnectCause.NO_BROKER_CREDENTIALS)
