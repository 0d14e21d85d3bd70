"""Tell the one protocol that a connection may be upgraded to from all others."""

from collections.abc import Mapping
from typing import Final

from proxy.core.counters import gauge

TUNNELS: Final = gauge("http_tunnels", "WebSocket tunnels open now.")


def is_websocket(headers: Mapping[str, str]) -> bool:
    """Return whether the header Upgrade names WebSocket alone, as aiohttp's parser judges it."""
    protocol = headers.get("Upgrade", "")
    # The Kelvin sign is a k in lower case.
    return protocol.isascii() and protocol.lower() == "websocket"
