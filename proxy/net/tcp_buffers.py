"""The kernel's own bounds for the buffers of a TCP socket; a machine where they cannot be read has the usual ones."""

from pathlib import Path
from typing import Final, NamedTuple

from proxy.core.process_memory import read_text

_DIRECTORY: Final = Path("/proc/sys/net/ipv4")
_USUAL_RECEIVE: Final = 6 * 1024 * 1024
_USUAL_SEND: Final = 4 * 1024 * 1024


class TcpBuffers(NamedTuple):
    """The upper ends of `tcp_rmem` and `tcp_wmem`, bytes."""

    receive: int
    send: int


def tcp_buffers() -> TcpBuffers:
    """Return the bounds of this network namespace."""
    return TcpBuffers(
        _upper_end(_DIRECTORY / "tcp_rmem", _USUAL_RECEIVE), _upper_end(_DIRECTORY / "tcp_wmem", _USUAL_SEND)
    )


def _upper_end(path: Path, usual: int) -> int:
    try:
        return int((read_text(path) or "").split()[2])
    except (ValueError, IndexError):
        return usual
