"""Tell brokers who this proxy is and for whom it speaks: CONNECT, and the answers to their challenges.

Without `authenticationEnabled` the proxy is a plain client on request connections. With it, brokers hear of the
client's role as `original_principal` (they take it only from roles in their `proxyRoles`), and with
`forwardAuthorizationCredentials` also of what the client presented. Whatever a client itself says of its origin is
never passed on.
"""

import asyncio
from collections.abc import Hashable
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
from proxy.core.errors import RequestFailed
from proxy.core.log import LinePace, Logger

_NOBODY: Final = AuthData("none", b"")


@dataclass(frozen=True, slots=True)
class Versions:
    """How the proxy names itself: to brokers, to clients."""

    proxy_version: str
    server_version: str


class ConnectFrames:
    """Make what the proxy sends to brokers about itself and its clients; credentials are fresh each time."""

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
        """Build CONNECT of a connection for requests of `principal`; raises CredentialsUnavailable."""
        name = self.versions.proxy_version
        proxy_version = name if self._authentication else None
        return commands.connect_lookup(name, proxy_version, await self._credentials(principal))

    async def for_client(self, connect: pb.CommandConnect, principal: Hashable) -> bytes:
        """Build CONNECT of a connection that the client will be joined to; raises CredentialsUnavailable."""
        return commands.connect_direct(connect, self.versions.proxy_version, await self._credentials(principal))

    async def answer(self) -> bytes:
        """Build AUTH_RESPONSE with the proxy's own credentials; raises CredentialsUnavailable or RequestFailed.

        In the handshake nothing else is asked for: what clients presented has gone with CONNECT.
        """
        own = await self._own.current()
        if own is None:
            raise RequestFailed(ServerError.AuthenticationError, "the broker asks for credentials, the proxy has none")
        return self._response(own)

    async def renewed(self, challenge: pb.CommandAuthChallenge, principal: Hashable) -> tuple[bytes, Hashable]:
        """Build AUTH_RESPONSE to a challenge in the course of a connection, and say whose it is from then on.

        A broker that has credentials of a client wants newer ones of that client, which must still be there. Raises
        AuthenticationFailed if it is not, else as `answer`; waits for the client as long as that takes.
        """
        refresh = challenge.challenge.auth_data == commands.REFRESH_DATA
        if refresh and isinstance(principal, Principal) and principal.original is not None:
            newer = await self._holders.renewed(principal)
            return self._response(newer.original or _NOBODY), newer
        return await self.answer(), principal

    def refused(self, broker: BrokerAddress, error: RequestFailed) -> None:
        """Write a line about a CONNECT that a broker refused for who the proxy is, at most one a second."""
        if error.code == ServerError.AuthenticationError:
            event, change = "broker refuses the credentials of the proxy", PLUGIN
        elif error.code == ServerError.AuthorizationError and self._authentication:
            # Its only reason at CONNECT: brokers take an original principal from their proxyRoles, and from no other.
            event, change = "broker refuses the roles of proxy and client", "proxyRoles of the broker"
        else:
            return
        if self._pace.due(self._loop.time(), event):
            self._log.warning(event, broker=str(broker), detail=error.message, change=change)

    async def _credentials(self, principal: Hashable) -> Credentials:
        own = await self._own.current()
        method, data = (None, None) if own is None else (own.method, own.data)
        if not isinstance(principal, Principal):
            return Credentials(method, data)
        original = principal.original
        if original is None:
            return Credentials(method, data, principal.role)
        # The field is text: upstream puts bytes that are no UTF-8 into it in the same way.
        text = original.data.decode(errors="replace")
        return Credentials(method, data, principal.role, text, original.method)

    def _response(self, data: AuthData) -> bytes:
        return commands.auth_response(self.versions.proxy_version, Credentials(data.method, data.data))
