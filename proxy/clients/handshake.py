"""The handshake of a client: CONNECT leads to lookup mode, or to a relay with the broker that it names.

With `authenticationEnabled` reading pauses until the client is authenticated, so no command is ever served for another
principal. The handshake's time limit includes the authentication.

The memory of a large CONNECT is released as soon as its credentials are checked: while a broker is dialled, which may
be any host that the client names and may never answer, only the few fields are kept that the broker is sent.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol import commands
from protocol.errors import ServerError
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from protocol.states import ConnectionState, State
from proxy.auth.client_authentication import ClientAuthentication, code_of, presented_by
from proxy.auth.client_credentials import ClientCredentials
from proxy.auth.identity import AuthenticationFailed, Principal
from proxy.clients.credential_refresh import ClientRefresh
from proxy.clients.large_frames import UNBOOKED_FRAME_BYTES, LargeFrames
from proxy.clients.services import ClientServices
from proxy.core.addresses import host_network, host_site
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.core.public_causes import PROXY_VERSION_TEXT, TARGET_TEXT, authentication_text, target_text
from proxy.core.tasks import do_nothing
from proxy.core.version import SERVER_VERSION
from proxy.relay.direct_mode import DirectRefused
from proxy.relay.engine import Relay
from proxy.requests.client import Hold
from proxy.telemetry.events.identities import LONGEST_VERSION, bounded
from proxy.telemetry.events.recorder import RequestOrigin

if TYPE_CHECKING:
    from proxy.clients.connection import ClientConnection


class ClientHandshake:
    """Brings a client from its CONNECT to lookup mode or to a relay."""

    __slots__ = ("_client", "_decoder", "_large", "_refresh", "_services", "_state")

    def __init__(
        self,
        client: "ClientConnection",
        services: ClientServices,
        decoder: FrameDecoder,
        state: ConnectionState,
        large: LargeFrames,
    ) -> None:
        self._client = client
        self._services = services
        self._decoder = decoder
        self._state = state
        self._large = large
        self._refresh: ClientRefresh | None = None

    def begin(self, connect: pb.CommandConnect) -> None:
        """Check a CONNECT and start the authentication or the connection to a broker."""
        if connect.protocol_version < commands.OLDEST_CLIENT_VERSION:
            self._client.close(DisconnectCause.UNSUPPORTED_VERSION)
            return
        if connect.HasField("proxy_version"):
            # Brokers trust a proxy's CONNECT, so this client could act for others (upstream refuses it, too).
            self._refuse(
                ServerError.NotAllowedError,
                PROXY_VERSION_TEXT,
                DisconnectCause.PROXY_VERSION_REFUSED,
            )
            return
        self._state.enter(State.CONNECTING)
        if self._services.requests.recorder is not None or self._services.sessions.logs_connections:
            # Kept only where somebody writes the version down: it is the client's text.
            self._client.client_version = bounded(connect.client_version, LONGEST_VERSION)
        if self._client.target and not connect.HasField("proxy_to_broker_url"):
            connect.proxy_to_broker_url = self._client.target
        if self._services.authentication is not None:
            # The commands after CONNECT must wait: they have no principal yet.
            self._client.hold(Hold.AUTHENTICATING)
            self._services.sessions.credentials_came(self._client)
            release = self._large.detach_permit() or do_nothing
            self._client.scope.start(self._authenticate(connect, self._services.authentication, release), release)
        elif connect.HasField("proxy_to_broker_url"):
            kept = self._kept_of(connect)
            if kept is not None:
                self._client.hold(Hold.CONNECTING)
                self._begin_direct_mode()
                self._client.scope.start(self._connect_to_broker(kept))
        else:
            self._enter_lookup_mode(connect)

    def auth_response(self, response: pb.CommandAuthResponse) -> None:
        """Handle an AUTH_RESPONSE; credentials that were not asked for are ignored."""
        if self._refresh is not None:
            self._refresh.answered(response, self._large.detach_permit())

    def close(self) -> None:
        """Release the credentials of a client that is gone."""
        if self._refresh is not None:
            self._refresh.close()
        if self._services.authentication is not None:
            self._services.authentication.holders.kept.release(self._client.principal)

    # --- authentication -----------------------------------------------------------------------------

    async def _authenticate(
        self, connect: pb.CommandConnect, authentication: ClientAuthentication, release: Callable[[], None]
    ) -> None:
        """Authenticate the client, then serve it; `release` gives back the memory of CONNECT."""
        client, presented = self._client, presented_by(connect)
        try:
            found = await authentication.verify(presented, client.certificate, client.name)
            forward = authentication.settings.forwards(presented.method)
            renewable = connect.feature_flags.supports_auth_refresh
            credentials = ClientCredentials(found, presented, forward=forward, renewable=renewable)
            network = host_network(client.client_address)
            client.principal = credentials.principal = authentication.holders.kept.keep(credentials.principal, network)
        except AuthenticationFailed as failure:
            authentication.refused(client.name, failure)
            message = authentication_text(failure.public)
            self._refuse(code_of(failure), message, DisconnectCause.AUTHENTICATION_FAILED)
            return
        if connect.HasField("proxy_to_broker_url"):
            kept = self._kept_of(connect)
            # A coroutine that waits for a broker keeps what its names stand for.
            del connect, presented
            release()
            if kept is not None:
                self._begin_direct_mode()
                await self._connect_to_broker(kept, credentials)
            return
        self._enter_lookup_mode(connect)
        self._watch(connect, credentials, authentication)
        client.unhold(Hold.AUTHENTICATING)

    def _watch(
        self, connect: pb.CommandConnect, credentials: ClientCredentials, authentication: ClientAuthentication
    ) -> None:
        if credentials.expires_at is None and not (credentials.renewable and credentials.forwarded):
            return
        self._refresh = ClientRefresh(
            self._client,
            authentication,
            credentials,
            self._client.scope,
            SERVER_VERSION,
            commands.negotiated_version(connect.protocol_version),
        )
        self._services.sessions.watch_credentials(self._client, self._refresh.look)

    def _watch_relay(self, relay: Relay, credentials: ClientCredentials) -> None:
        """Close the relay when the credentials expire, unless its broker has them and asks the client itself."""
        authentication = self._services.authentication
        if authentication is None or credentials.forwarded or credentials.expires_at is None:
            return
        now = authentication.now

        def look() -> None:
            if not credentials.valid(now()):
                relay.close(DisconnectCause.CREDENTIALS_EXPIRED)

        self._services.sessions.watch_credentials(relay, look)

    # --- lookup mode and relay ----------------------------------------------------------------------

    def _enter_lookup_mode(self, connect: pb.CommandConnect) -> None:
        client, limits = self._client, self._services.limits
        self._state.enter(State.LOOKUP)
        self._decoder.max_frame_bytes = limits.max_frame_bytes
        client.output.buffer = self._services.send_buffers.open(client.output)
        self._services.sessions.handshake_done(client)
        client.output.send(commands.connected_lookup(connect, SERVER_VERSION))

    def _begin_direct_mode(self) -> None:
        """Stop the client's handshake timer; from here on the broker's time limits apply."""
        self._state.enter(State.CONNECTING_TO_BROKER)
        self._services.sessions.handshake_done(self._client)

    def _kept_of(self, connect: pb.CommandConnect) -> pb.CommandConnect | None:
        """Return the part of CONNECT that is needed for a broker; close a client for which that is too much to keep."""
        kept = commands.connect_kept(connect)
        if kept.ByteSize() <= UNBOOKED_FRAME_BYTES:
            return kept
        self._client.close(DisconnectCause.FRAME_TOO_LARGE)
        return None

    async def _connect_to_broker(
        self, connect: pb.CommandConnect, credentials: ClientCredentials | None = None
    ) -> None:
        """Connect the client to the broker that it names; afterwards a relay owns both sockets."""
        client, direct_mode = self._client, self._services.direct_mode
        try:
            network = host_network(client.client_address)
            broker = await direct_mode.connect(connect, client.principal, client.origin(), network)
        except DirectRefused as refused:
            text = target_text(refused.cause, refused.message)
            self._refuse(refused.code, text, refused.cause, refused.message)
            return
        try:
            broker_transport, to_client = broker.hand_over()
        except ConnectionClosed as closed:
            self._refuse(ServerError.ServiceNotReady, TARGET_TEXT, closed.cause, f"the broker is gone: {closed}")
            return
        try:
            client_transport = client.detach()
        except ConnectionClosed:
            broker_transport.abort()
            return
        self._state.enter(State.RELAY)
        if credentials is not None and self._services.authentication is not None:
            # The broker has them, and nothing of a relay needs them.
            self._services.authentication.holders.kept.release(client.principal)
            client.principal = Principal(credentials.principal.role)
        relay = direct_mode.join(
            client_transport,
            broker_transport,
            self._services.sessions.relay_ended,
            key=client.charged,
            name=client.name,
            origin=RequestOrigin(client.principal, client.name, client.client_version),
            network=host_site(client.client_address),
        )
        self._services.sessions.became_relay(client, relay, broker.is_known)
        if credentials is not None:
            self._watch_relay(relay, credentials)
        relay.start(client_transport, broker_transport, to_client, self._decoder.take_rest())
        client.dissolve()

    def _refuse(self, code: int, message: str, cause: DisconnectCause, detail: str = "") -> None:
        """Answer CONNECT with an ERROR of a fixed text, and close the connection; `detail` is for the log."""
        self._client.detail = detail
        self._client.output.send(commands.error(commands.REQUEST_ID_NONE, code, message))
        self._client.close(cause)
