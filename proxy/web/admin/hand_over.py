"""Hand the listening sockets over to another process of the same user, which has asked on the control socket.

Rule: that process waits at an address of the abstract namespace that the kernel has chosen for it, and the kernel says
whose process it is before it gets anything. Nothing here waits: its queue has room, or the hand-over fails.
"""

import os
import re
import socket
from collections.abc import Mapping, Sequence
from typing import Final

from proxy.core.version import VERSION
from proxy.net.listen.listening import Handed
from proxy.net.listen.unix_sockets import credentials_of

# The form of a name that the kernel gives to a socket bound to nothing (unix(7)), "@" for its first byte.
_CHOSEN_BY_KERNEL: Final = re.compile(r"@[0-9a-f]{5}")
# The kernel passes 253 at once (SCM_MAX_FD).
SOCKETS_A_MESSAGE: Final = 200
MESSAGE: Final = b"\n"
_ROOT: Final = 0


def send_sockets(to: str, handed: Sequence[Handed]) -> None:
    """Send the descriptors of the sockets in their order; raises ValueError for a wrong name, OSError for all else."""
    if not _CHOSEN_BY_KERNEL.fullmatch(to):
        raise ValueError("expected a name that the kernel chose, such as @0001f")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sending:
        sending.setblocking(False)
        sending.connect("\0" + to[1:])
        if credentials_of(sending).uid not in (os.geteuid(), _ROOT):
            raise PermissionError("a process of another user waits there")
        numbers = [each.listening.fileno() for each in handed]
        for first in range(0, len(numbers), SOCKETS_A_MESSAGE):
            socket.send_fds(sending, [MESSAGE], numbers[first : first + SOCKETS_A_MESSAGE])


def described(handed: Sequence[Handed], budget_bytes: int) -> Mapping[str, object]:
    """Return the document for the process that takes over: what each socket is for, in the order of the sockets."""
    return {
        "pid": os.getpid(),
        "version": VERSION,
        "budget_bytes": budget_bytes,
        "sockets": [_row(each) for each in handed],
    }


def _row(handed: Handed) -> Mapping[str, object]:
    purpose = handed.purpose
    assert purpose is not None
    return {
        "address": handed.place,
        "key": purpose.key,
        "broker": purpose.target,
        "tls": purpose.tls,
        "removes_file": handed.removes,
    }
