"""The client behind a request, as the services that answer requests see it."""

from collections.abc import Hashable
from typing import Protocol

from proxy.core.errors import DisconnectCause
from proxy.net.output import Output


class ClientView(Protocol):
    """A client as its requests see it (`proxy.clients.connection.ClientConnection`)."""

    output: Output
    principal: Hashable
    name: str
    client_version: str | None
    cause: DisconnectCause | None

    @property
    def max_frame_bytes(self) -> int:
        """Return the size of the largest frame that the client accepts."""

    @property
    def gone(self) -> bool:
        """Return whether the client's connection has ended."""


class TurnClient(ClientView, Protocol):
    """A client that takes turns with others, by `network`: an address, or an IPv6 /48 network."""

    network: str
