"""The clients that can renew forwarded credentials: clients in lookup mode, by their principal.

On a pooled connection a broker may ask for new credentials of the connection's principal. The proxy asks a client that
shares the connection; if that client leaves or cannot answer, the proxy asks the next client.
"""

import asyncio
from collections.abc import Callable

from proxy.auth.identity import AuthenticationFailed, Principal
from proxy.auth.kept_credentials import KeptCredentials
from proxy.core.errors import ConnectionClosed

# Asks a client for new credentials; the future is their principal, or fails with ConnectionClosed. None if the client
# cannot be asked.
Renew = Callable[[], asyncio.Future[Principal] | None]


class CredentialHolders:
    """Finds a client that can renew the credentials of a principal; `kept` is the memory of large ones."""

    def __init__(self, kept: KeptCredentials) -> None:
        self.kept = kept
        self._holders: dict[Principal, dict[Renew, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._holders.values()))

    def add(self, principal: Principal, renew: Renew) -> None:
        """Record that the client behind `renew` presented the credentials of `principal`."""
        self._holders.setdefault(principal, {})[renew] = None

    def remove(self, principal: Principal, renew: Renew) -> None:
        """Remove a client that has left or has presented new credentials."""
        holders = self._holders.get(principal)
        if holders is None:
            return
        holders.pop(renew, None)
        if not holders:
            del self._holders[principal]

    async def renewed(self, principal: Principal) -> Principal:
        """Return new credentials from a client; raise AuthenticationFailed if no client is left that can renew them.

        The wait has no time limit; the caller sets one.
        """
        asked: set[Renew] = set()
        while True:
            answer = self._ask_another(principal, asked)
            if answer is None:
                raise AuthenticationFailed("no client is left that could renew its credentials")
            try:
                return await answer
            except ConnectionClosed:
                continue

    def _ask_another(self, principal: Principal, asked: set[Renew]) -> asyncio.Future[Principal] | None:
        for renew in list(self._holders.get(principal, ())):
            if renew not in asked:
                asked.add(renew)
                answer = renew()
                if answer is not None:
                    return answer
        return None
