"""Owns ports that are known before their listener starts: for processes that cannot say which port they took.

Rule: none lies where the kernel takes ports for outgoing connections and for port 0. A JVM needs seconds until it
listens, and by then any process of this machine may have been given such a port, the more so with tests side by side.
"""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
FIRST = 15_000
LAST = 32_767
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Seeded by the system, whatever a test does to `random`: two runs at the same time must not draw the same.
_DRAWN = random.SystemRandom()


def free_ports(count: int, first: int = FIRST, last: int = LAST) -> list[int]:
    """Find loopback ports that are free now; all are held until all are known, so they differ; raises OSError."""
    sockets: list[socket.socket] = []
    try:
        tried = candidates(first, last)
        for port in _DRAWN.sample(tried, len(tried)):
            if len(sockets) == count:
                break
            if (held := _hold(port)) is not None:
                sockets.append(held)
        if len(sockets) < count:
            raise OSError(f"got {len(sockets)} free ports from {first} to {last}, expected {count}")
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def free_port() -> int:
    """Find a port on which nobody listens."""
    return free_ports(1)[0]


def candidates(first: int, last: int, range_file: Path = RANGE) -> range:
    """Give the ports to try: those below the kernel's own, or all if this kernel's begin lower."""
    try:
        kernels = int(range_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        kernels = last + 1
    return range(first, min(last + 1, kernels)) if kernels > first else range(first, last + 1)


def _hold(port: int) -> socket.socket | None:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError:
        return None
