"""Close connections of the web ports and to web services so that none outlives its exchange.

Rule: a graceful close waits until the peer has read everything, possibly without end. So a connection with unsent bytes
at the end of its exchange is reset; bytes in the kernel's queue expire with TCP_USER_TIMEOUT.
"""

import asyncio
import socket

from proxy.net.sockets import reset_on_close


def reset(transport: asyncio.WriteTransport) -> None:
    """Abort with an RST: bytes in the kernel must neither linger nor look like a complete answer."""
    own: socket.socket | None = transport.get_extra_info("socket")
    if own is not None:
        reset_on_close(own)
    transport.abort()


def end(transport: asyncio.WriteTransport) -> None:
    """Close the connection, or reset it if written bytes are unsent."""
    if transport.get_write_buffer_size():
        reset(transport)
    else:
        transport.close()
