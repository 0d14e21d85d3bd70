"""A client connection as the parts around it see it: its handshake, its credentials and the list of all sessions."""

import asyncio
from collections.abc import Hashable
from enum import IntFlag
from typing import Protocol

from protocol.proxy_header import ProxyHeader
from proxy.core.errors import DisconnectCause
from proxy.requests.client import ClientView


class Hold(IntFlag):
    """Why a client is not being read."""

    OUTSTANDING = 1
    OUTPUT = 2
    LARGE_FRAME = 4
    CONNECTING = 8
    TURN = 16
    AUTHENTICATING = 32
    AGE = 64


class ClientSession(ClientView, Hashable, Protocol):
    """One client's connection (`proxy.clients.connection.ClientConnection` is one)."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport | None
    client_address: str
    target: str

    @property
    def busy(self) -> bool:
        """Return whether requests are under way."""

    @property
    def certificate(self) -> bytes | None:
        """Return the client's verified certificate, DER; None without one."""

    @property
    def charged(self) -> Hashable:
        """Return the key that is charged for memory of no namespace."""

    def hold(self, reason: Hold) -> None:
        """Stop reading, for one more reason."""

    def unhold(self, reason: Hold) -> None:
        """Read on, unless there is another reason left."""

    def origin(self) -> ProxyHeader | None:
        """Return the client's address and the address it connected to, for a broker that wants to know."""

    def detach(self) -> asyncio.Transport:
        """Return the transport to another owner; raises ConnectionClosed."""

    def tick(self, now: float) -> None:
        """Look after a silent client, once per keep-alive interval."""

    def limits_changed(self) -> None:
        """Read on if the new limits allow it."""

    def retire(self, now_or_never: bool) -> None:
        """End a connection that is old enough, once nothing is under way."""

    def close(self, cause: DisconnectCause) -> None:
        """End the connection after what it was sent has left."""

    def abort(self, cause: DisconnectCause) -> None:
        """End the connection at once."""
