"""The clients that can renew forwarded credentials: clients in lookup mode, by their principal.

On a pooled connection a broker may ask for new credentials of the connection's principal. The proxy asks a client that
shares the connection; if that client leaves or cannot answer, the proxy asks the next client.
"""

import asyncio
from typing import Protocol

from proxy.auth.identity import AuthenticationFailed, Principal
from proxy.auth.kept_credentials import KeptCredentials
from proxy.core.errors import ConnectionClosed


class Holder(Protocol):
    """A client that presented the credentials (implemented by `proxy.clients.credential_refresh.ClientRefresh`)."""

    def renew(self) -> asyncio.Future[Principal] | None:
        """Ask the client for new credentials; the future is their principal, or fails with ConnectionClosed.

        Return None if the client cannot be asked.
        """


class CredentialHolders:
    """Finds a client that can renew the credentials of a principal; `kept` is the memory of large ones."""

    def __init__(self, kept: KeptCredentials) -> None:
        self.kept = kept
        self._holders: dict[Principal, dict[Holder, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._holders.values()))

    def add(self, principal: Principal, holder: Holder) -> None:
        """Record that `holder` presented the credentials of `principal`."""
        self._holders.setdefault(principal, {})[holder] = None

    def remove(self, principal: Principal, holder: Holder) -> None:
        """Remove a client that has left or has presented new credentials."""
        holders = self._holders.get(principal)
        if holders is None:
            return
        holders.pop(holder, None)
        if not holders:
            del self._holders[principal]

    async def renewed(self, principal: Principal) -> Principal:
        """Return new credentials from a client; raise AuthenticationFailed if no client is left that can renew them.

        The wait has no time limit; the caller sets one.
        """
        asked: set[Holder] = set()
        while True:
            answer = self._ask_another(principal, asked)
            if answer is None:
                raise AuthenticationFailed("no client is left that could renew its credentials")
            try:
                return await answer
            except ConnectionClosed:
                continue

    def _ask_another(self, principal: Principal, asked: set[Holder]) -> asyncio.Future[Principal] | None:
        for holder in list(self._holders.get(principal, ())):
            if holder not in asked:
                asked.add(holder)
                answer = holder.renew()
                if answer is not None:
                    return answer
        return None
