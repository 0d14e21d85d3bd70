"""Checks and renewal of an authenticated client's credentials while it is connected.

No task or timer runs per connection: `proxy.clients.sessions` calls `look` periodically. A client is asked at most once
at a time, and its answer serves all waiters.

The rules here are those of lookup mode. A relay whose broker does not get the credentials ends when they have expired
(`_watch_relay` in `handshake.py`), a WebSocket too (`proxy/web/forward/websockets.py`): nobody can renew them there.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from protocol import commands
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.client_authentication import ClientAuthentication, code_of
from proxy.auth.client_credentials import ClientCredentials, Look
from proxy.auth.identity import AuthData, AuthenticationFailed, Principal
from proxy.core.addresses import host_network
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.core.public_causes import authentication_text
from proxy.core.tasks import TaskScope

if TYPE_CHECKING:
    from proxy.clients.connection import ClientConnection


class ClientRefresh:
    """Keeps the credentials of a client in lookup mode fresh."""

    __slots__ = (
        "_authentication",
        "_client",
        "_credentials",
        "_protocol_version",
        "_scope",
        "_server_version",
        "_waiting",
    )

    def __init__(
        self,
        client: "ClientConnection",
        authentication: ClientAuthentication,
        credentials: ClientCredentials,
        scope: TaskScope,
        server_version: str,
        protocol_version: int,
    ) -> None:
        self._client = client
        self._authentication = authentication
        self._credentials = credentials
        self._scope = scope
        self._server_version = server_version
        self._protocol_version = protocol_version
        self._waiting: list[asyncio.Future[Principal]] = []
        if credentials.renewable and credentials.forwarded:
            authentication.holders.add(credentials.principal, self.renew)

    def look(self) -> None:
        """Ask for new credentials after expiry; close a connection that cannot renew them."""
        authentication, loop = self._authentication, self._client.loop
        found = self._credentials.look(authentication.now(), loop.time(), authentication.settings.refresh_seconds)
        if found is Look.ASK:
            self._ask()
        elif found is Look.EXPIRED:
            self._client.close(DisconnectCause.CREDENTIALS_EXPIRED)
        elif found is Look.UNANSWERED:
            self._client.close(DisconnectCause.CREDENTIALS_NOT_RENEWED)

    def renew(self) -> asyncio.Future[Principal] | None:
        """Ask the client for new credentials, unless it was asked already."""
        if self._client.gone or not self._credentials.renewable:
            return None
        if not self._credentials.under_way:
            self._ask()
        waiting: asyncio.Future[Principal] = self._client.loop.create_future()
        # Drop waiters that gave up: no other code does while the client stays silent.
        self._waiting = [future for future in self._waiting if not future.done()]
        self._waiting.append(waiting)
        return waiting

    def answered(self, response: pb.CommandAuthResponse, release: Callable[[], None] | None) -> None:
        """Verify an AUTH_RESPONSE; ignore one that was not asked for.

        `release` releases the permit of the response's memory.
        """
        if self._credentials.answered():
            self._scope.start(self._verify(response.response.auth_data), release)
        elif release is not None:
            release()

    def close(self) -> None:
        """Remove the client; its waiters ask another client."""
        self._authentication.holders.remove(self._credentials.principal, self.renew)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionClosed(self._client.cause or DisconnectCause.CLIENT_CLOSED))
                future.exception()

    def _ask(self) -> None:
        self._credentials.asked(self._client.loop.time())
        method = self._credentials.method
        self._client.output.send(commands.auth_challenge(self._server_version, method, self._protocol_version))

    async def _verify(self, data: bytes) -> None:
        authentication, credentials, client = self._authentication, self._credentials, self._client
        before = credentials.principal
        try:
            # The method cannot change: as in upstream, the method that the response names is ignored.
            presented = AuthData.presented(credentials.method, data)
            found = await authentication.verify(presented, client.certificate, client.name)
            keep = partial(authentication.holders.kept.keep, network=host_network(client.client_address))
            credentials.renewed(found, presented, keep)
        except AuthenticationFailed as failure:
            authentication.refused(client.name, failure)
            message = authentication_text(failure.public)
            client.output.send(commands.error(commands.REQUEST_ID_NONE, code_of(failure), message))
            client.close(DisconnectCause.AUTHENTICATION_FAILED)
            return
        if before.original is not None:
            authentication.holders.kept.release(before)
            authentication.holders.remove(before, self.renew)
        if credentials.forwarded:
            authentication.holders.add(credentials.principal, self.renew)
        client.principal = credentials.principal
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(credentials.principal)
