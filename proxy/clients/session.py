"""The interface of a client connection for its handshake, credentials, requests, and the list of all sessions."""

import asyncio
from collections.abc import Hashable
from enum import IntFlag
from typing import Protocol

from protocol.proxy_header import ProxyHeader
from proxy.core.errors import DisconnectCause
from proxy.core.tasks import TaskScope
from proxy.requests.client import TurnClient


class Hold(IntFlag):
    """Reasons why a client is not being read."""

    OUTSTANDING = 1
    OUTPUT = 2
    LARGE_FRAME = 4
    CONNECTING = 8
    TURN = 16
    AUTHENTICATING = 32
    AGE = 64
    RATE = 128
    COMMAND_BYTES = 256


class ClientSession(TurnClient, Hashable, Protocol):
    """A client's connection (implemented by `proxy.clients.connection.ClientConnection`)."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport | None
    client_address: str
    target: str
    detail: str
    received_bytes: int

    @property
    def scope(self) -> TaskScope:
        """Return the scope of tasks that end with the connection."""

    @property
    def in_lookup_mode(self) -> bool:
        """Whether the requests of the client are served here."""

    @property
    def busy(self) -> bool:
        """Whether requests are in progress."""

    @property
    def certificate(self) -> bytes | None:
        """The client's verified certificate, DER; None without a certificate."""

    @property
    def charged(self) -> Hashable:
        """The fairness key that is charged for memory without a namespace."""

    def hold(self, reason: Hold) -> None:
        """Stop reading, for an additional reason."""

    def unhold(self, reason: Hold) -> None:
        """Resume reading, unless another reason is left."""

    def origin(self) -> ProxyHeader | None:
        """Return the client's address and the address it connected to, for the PROXY header to brokers."""

    def fewer_requests(self) -> None:
        """Called when a request has ended."""

    def crashed(self, error: BaseException) -> None:
        """Called with an exception of a request's task."""

    def dissolve(self) -> None:
        """Release what makes reference cycles of a connection that is over."""

    def detach(self) -> asyncio.Transport:
        """Return the transport, which gets another owner; raise ConnectionClosed."""

    def idle_since_asked(self) -> bool:
        """Return whether nothing is under way and nothing was asked for since the last call; False outside of lookup
        mode.
        """

    def unread_bytes(self) -> int:
        """Return the bytes of the client that wait in the kernel to be read."""

    def tick(self, now: float) -> None:
        """Called once per keep-alive interval, to PING a silent client or close a dead one."""

    def limits_changed(self) -> None:
        """Resume reading if the new limits allow it."""

    def retire(self, now_or_never: bool) -> None:
        """Close a connection that has reached its age, once no request is in progress."""

    def close(self, cause: DisconnectCause) -> None:
        """Close the connection after all written bytes have been sent."""

    def abort(self, cause: DisconnectCause) -> None:
        """Close the connection at once."""
