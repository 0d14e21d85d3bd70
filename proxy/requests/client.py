"""What the services that answer requests need to know of the client that asks."""

from collections.abc import Hashable
from typing import Protocol

from proxy.core.errors import DisconnectCause
from proxy.net.output import Output


class ClientView(Protocol):
    """A client as its requests see it (`proxy.clients.connection.ClientConnection` is one)."""

    output: Output
    principal: Hashable
    name: str
    client_version: str | None
    cause: DisconnectCause | None

    @property
    def max_frame_bytes(self) -> int:
        """Give the largest frame the client accepts."""

    @property
    def gone(self) -> bool:
        """Tell whether the client's connection has ended."""
