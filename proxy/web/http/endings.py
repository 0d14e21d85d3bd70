"""End connections of the web ports and to web services so that none outlives what it was for.

Rule: a graceful close waits for what the peer does not read, possibly for ever; so who still has unsent bytes when its
exchange is over is reset, and what is left in the kernel of the others ends with TCP_USER_TIMEOUT.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


def reset(transport: asyncio.WriteTransport) -> None:
    """End with an RST: what the kernel still has must not linger, nor look like a proper end."""
    own: socket.socket | None = transport.get_extra_info("socket")
    if own is not None:
        with suppress(OSError):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def end(transport: asyncio.WriteTransport) -> None:
    """Close, or reset if the peer has not taken what was written."""
    if transport.get_write_buffer_size():
        reset(transport)
    else:
        transport.close()
