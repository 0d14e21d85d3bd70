"""The handshake of one client: CONNECT is judged, and leads to lookup mode or to a relay with the broker it names."""

from typing import TYPE_CHECKING

from protocol import commands
from protocol.errors import ServerError
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, State
from proxy.client_services import ClientServices, Hold
from proxy.direct_mode import DirectRefused
from proxy.errors import ConnectionClosed, DisconnectCause
from proxy.large_frames import LargeFrames
from proxy.tasks import TaskScope

if TYPE_CHECKING:
    from proxy.client_connection import ClientConnection


class ClientHandshake:
    """Take a client from its CONNECT to the state it is served in."""

    __slots__ = ("_client", "_decoder", "_large", "_scope", "_send_buffer_bytes", "_services", "_state")

    def __init__(
        self,
        client: "ClientConnection",
        services: ClientServices,
        decoder: FrameDecoder,
        state: ConnectionState,
        scope: TaskScope,
        large: LargeFrames,
    ) -> None:
        self._client = client
        self._services = services
        self._decoder = decoder
        self._state = state
        self._scope = scope
        self._large = large
        self._send_buffer_bytes = 0

    def begin(self, connect: pb.CommandConnect) -> None:
        """Judge a CONNECT."""
        if connect.protocol_version < commands.OLDEST_CLIENT_VERSION:
            self._client.close(DisconnectCause.UNSUPPORTED_VERSION)
            return
        if connect.HasField("proxy_version"):
            # A client could otherwise speak for others: brokers trust what a proxy says (upstream refuses it too).
            self._refuse(
                ServerError.NotAllowedError,
                "must not provide proxy_version",
                DisconnectCause.PROXY_VERSION_REFUSED,
            )
            return
        self._state.enter(State.CONNECTING)
        if connect.HasField("proxy_to_broker_url"):
            self._state.enter(State.CONNECTING_TO_BROKER)
            self._services.sessions.handshake_done(self._client)
            self._client.hold(Hold.CONNECTING)
            self._scope.start(self._connect_to_broker(connect), self._large.take_permit())
        else:
            self._enter_lookup_mode(connect)

    def close(self) -> None:
        """Give back what the handshake took: the client is gone."""
        self._services.send_buffers.take_back(self._send_buffer_bytes)

    def _enter_lookup_mode(self, connect: pb.CommandConnect) -> None:
        client, limits = self._client, self._services.limits
        self._state.enter(State.LOOKUP)
        self._decoder.max_frame_bytes = limits.max_frame_bytes
        assert client.transport is not None
        own_socket = client.transport.get_extra_info("socket")
        self._send_buffer_bytes = self._services.send_buffers.give(own_socket, limits.send_buffer_bytes)
        self._services.sessions.handshake_done(client)
        client.output.send(commands.connected_lookup(connect, self._services.server_version))

    async def _connect_to_broker(self, connect: pb.CommandConnect) -> None:
        """Join the client to the broker it names; from then on a relay owns both sockets."""
        client, direct_mode = self._client, self._services.direct_mode
        try:
            broker = await direct_mode.connect(connect)
        except DirectRefused as refused:
            self._refuse(refused.code, refused.message, refused.cause)
            return
        try:
            broker_transport, to_client = broker.hand_over()
        except ConnectionClosed as closed:
            self._refuse(ServerError.ServiceNotReady, f"the broker is gone: {closed}", closed.cause)
            return
        try:
            client_transport = client.detach()
        except ConnectionClosed:
            broker_transport.abort()
            return
        self._state.enter(State.RELAY)
        relay = direct_mode.join(self._services.sessions.relay_ended, key=client.charged)
        self._services.sessions.became_relay(client, relay)
        relay.start(client_transport, broker_transport, to_client, self._decoder.take_rest())

    def _refuse(self, code: int, message: str, cause: DisconnectCause) -> None:
        """Answer CONNECT with an ERROR about the connection, and end it."""
        self._client.output.send(commands.error(commands.REQUEST_ID_NONE, code, message))
        self._client.close(cause)
