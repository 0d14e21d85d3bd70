"""CONNECT frames to brokers and answers to their challenges, with the proxy's credentials and the client's identity.

Without `authenticationEnabled` the proxy is a plain client on request connections. With it, brokers get the client's
role as `original_principal` (brokers accept it only from roles in their `proxyRoles`), and with
`forwardAuthorizationCredentials` also the client's credentials. The `original_*` fields of a client's own CONNECT are
never forwarded.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from protocol import commands
from protocol.commands import Credentials
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.credential_holders import CredentialHolders
from proxy.auth.identity import AuthData, Principal
from proxy.auth.own.broker_credentials import BrokerCredentials
from proxy.brokers.target import BrokerAddress
from proxy.config.credential_parameters import PLUGIN
from proxy.config.keys_table import ConfigKeys
from proxy.core.errors import RequestFailed
from proxy.core.log import LinePace, Logger

FORWARDS: Final = ConfigKeys.forward_authorization_credentials.name
_NOBODY: Final = AuthData("none", b"")


@dataclass(frozen=True, slots=True)
class Versions:
    """The version strings of the proxy for brokers and for clients."""

    proxy_version: str
    server_version: str


class ConnectFrames:
    """Builds the frames that identify the proxy and its clients to brokers; credentials are read each time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        own: BrokerCredentials,
        holders: CredentialHolders,
        versions: Versions,
        log: Logger,
        *,
        authentication: bool,
    ) -> None:
        self._loop = loop
        self._own = own
        self._holders = holders
        self._log = log
        self._pace = LinePace()
        self._authentication = authentication
        self.versions = versions

    async def for_requests(self, principal: Hashable) -> bytes:
        """Build CONNECT of a connection for requests of `principal`; raise CredentialsUnavailable."""
        name = self.versions.proxy_version
        proxy_version = name if self._authentication else None
        return commands.connect_lookup(name, proxy_version, _credentials(await self._own.current(), principal))

    async def for_client(self, connect: pb.CommandConnect, principal: Hashable) -> Callable[[], bytes]:
        """Return what builds CONNECT of a connection that will be relayed for a client; raise CredentialsUnavailable.

        The frame may be large, and dials may be many and long: build it when the socket is open.
        """
        own, version = await self._own.current(), self.versions.proxy_version
        return lambda: commands.connect_direct(connect, version, _credentials(own, principal))

    async def answer(self) -> bytes:
        """Build AUTH_RESPONSE with the proxy's own credentials; raise CredentialsUnavailable or RequestFailed.

        In the handshake a broker asks only for these: the credentials of clients were sent in CONNECT.
        """
        own = await self._own.current()
        if own is None:
            raise RequestFailed(ServerError.AuthenticationError, "the broker asks for credentials, the proxy has none")
        return self._response(own)

    async def renewed(self, challenge: pb.CommandAuthChallenge, principal: Hashable) -> tuple[bytes, Hashable]:
        """Build AUTH_RESPONSE to a challenge after the handshake, and return the connection's new principal.

        A broker with credentials of a client asks for new ones, which only a connected client can renew. Raise
        AuthenticationFailed if no such client is left, and the errors of `answer`. The wait has no time limit.
        """
        refresh = challenge.challenge.auth_data == commands.REFRESH_DATA
        if refresh and isinstance(principal, Principal) and principal.original is not None:
            newer = await self._holders.renewed(principal)
            return self._response(newer.original or _NOBODY), newer
        return await self.answer(), principal

    def refused(self, broker: BrokerAddress, error: RequestFailed, principal: Hashable) -> bool:
        """Log a CONNECT that a broker refused because of an identity, at most once a second; return whether it was so.

        `principal` is the client that CONNECT spoke for. Brokers do not say whose credentials they refuse.
        """
        if error.code == ServerError.AuthenticationError:
            event, change = "broker refuses the credentials of the proxy", PLUGIN
            if isinstance(principal, Principal):
                sent = "were sent" if principal.original is not None else "were not sent"
                event = f"broker refuses the credentials of the proxy, or those of its client, which {sent}"
                change = f"{PLUGIN}; {FORWARDS} here, authenticateOriginalAuthData at the broker"
        elif error.code == ServerError.AuthorizationError and self._authentication:
            # The only reason at CONNECT: brokers accept an original principal only from their proxyRoles.
            event, change = "broker refuses the roles of proxy and client", "proxyRoles of the broker"
        else:
            return False
        if self._pace.due(self._loop.time(), event):
            self._log.warning(event, broker=str(broker), detail=error.message, change=change)
        return True

    def _response(self, data: AuthData) -> bytes:
        return commands.auth_response(self.versions.proxy_version, Credentials(data.method, data.data))


def _credentials(own: AuthData | None, principal: Hashable) -> Credentials:
    method, data = (None, None) if own is None else (own.method, own.data)
    if not isinstance(principal, Principal):
        return Credentials(method, data)
    original = principal.original
    if original is None:
        return Credentials(method, data, principal.role)
    # The field is text; upstream replaces bytes that are not UTF-8 in the same way.
    text = original.data.decode(errors="replace")
    return Credentials(method, data, principal.role, text, original.method)
