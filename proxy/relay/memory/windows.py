"""The receive windows of relayed sockets: what the kernel may keep of a sender's bytes while nobody takes them.

Rule: the window towards a broker is narrow until the client has taken enough. So consumers that never read hold little,
and all others have the kernel's autotuning. The threads of the native engine widen windows, and narrow them again while
memory is short (`native/src/relay/windows.rs`).
"""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

from proxy.net.listen.accept_loop import receive_is_set

# The size that is asked for; the kernel doubles a size.
NARROW_BYTES: Final = 64 * 1024


def narrow(broker: asyncio.BaseTransport) -> None:
    """Set a narrow window towards the broker of a new relay, which ends the kernel's autotuning."""
    own: Any = broker.get_extra_info("socket")
    # A connection that has ended meanwhile needs no bound.
    with suppress(OSError, AttributeError):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)


def can_unlock() -> bool:
    """Return whether the kernel takes a buffer that was set back for autotuning (Linux 5.15): else none is narrowed."""
    with socket.socket() as probe, suppress(OSError):
        receive_is_set(probe)
        return True
    return False
