"""Sockets of questions to issuers, which are read in small steps: a read of aiohttp's is parsed as a whole.

A read of 256 KiB could be 40,000 chunks of a byte, which is 30 ms of the event loop. Answers of issuers are small.
How many checks wait for an issuer stands here, too: the memory budget reads it without the libraries that ask.
"""

import socket
from typing import Any, Final

# The kernel doubles it, and a read returns at most that: some 2,000 chunks of a byte, or 2 ms.
RECEIVE_BYTES: Final = 8192
# A fleet that reconnects at once may wait together, but waiting clients must not take unbounded memory.
MOST_WAITING: Final = 1024


def issuer_socket(found: Any) -> socket.socket:
    """Return a new socket for an address of `getaddrinfo`, which the caller connects."""
    made = socket.socket(found[0], socket.SOCK_STREAM)
    made.setblocking(False)
    # Set the size before connect(), which announces the window.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return made
