"""Who can renew the credentials that are forwarded: the clients in lookup mode, by what they presented.

A broker asks on a pooled connection for newer credentials of the principal that the connection speaks for. They come
from one of the clients that share it; who leaves or cannot answer is followed by the next.
"""

import asyncio
from typing import Protocol

from proxy.auth.identity import AuthenticationFailed, Principal
from proxy.core.errors import ConnectionClosed


class Holder(Protocol):
    """A client that presented the credentials (`proxy.clients.credential_refresh.ClientRefresh` is one)."""

    def renew(self) -> asyncio.Future[Principal] | None:
        """Ask the client for newer credentials; the future is the principal with them, or fails with ConnectionClosed.

        None if the client cannot be asked.
        """


class CredentialHolders:
    """Find a client that can renew a principal's credentials."""

    def __init__(self) -> None:
        self._holders: dict[Principal, dict[Holder, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._holders.values()))

    def add(self, principal: Principal, holder: Holder) -> None:
        """Note that `holder` presented the credentials of `principal`."""
        self._holders.setdefault(principal, {})[holder] = None

    def remove(self, principal: Principal, holder: Holder) -> None:
        """Forget it: the client has left, or has presented newer ones."""
        holders = self._holders.get(principal)
        if holders is None:
            return
        holders.pop(holder, None)
        if not holders:
            del self._holders[principal]

    async def renewed(self, principal: Principal) -> Principal:
        """Get newer credentials from a client; raises AuthenticationFailed if none is left that could give them.

        The wait has no end of its own.
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
