"""What the kernel is told about a receive window, on real sockets: it alone says what it makes of that."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from proxy.relay.memory.windows import NARROW_BYTES, PROVEN_BYTES, ReceiveWindows


class Transport:
    """A transport as far as a window needs one."""

    def __init__(self, own: socket.socket) -> None:
        self.own = own

    def get_extra_info(self, name: str) -> Any:
        return self.own if name == "socket" else None


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as own,
        listening.accept()[0],
    ):
        yield own


def transport_of(own: socket.socket) -> asyncio.BaseTransport:
    return cast(asyncio.BaseTransport, Transport(own))


def clamp(own: socket.socket) -> int:
    """Return the largest window that the kernel announces."""
    return own.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP)


@pytest.mark.parametrize("wide_bytes", [0, 4 * NARROW_BYTES])
def test_a_window_that_was_earned_may_be_as_large_as_it_should(connected: socket.socket, wide_bytes: int) -> None:
    windows, transport = ReceiveWindows(wide_bytes), transport_of(connected)
    windows.begin(transport)
    assert clamp(connected) <= 2 * NARROW_BYTES
    windows.widen(transport)
    assert clamp(connected) == (wide_bytes or PROVEN_BYTES), "a larger buffer alone leaves the window as it was"


def test_a_window_that_was_earned_is_the_kernels_again(connected: socket.socket) -> None:
    windows, transport = ReceiveWindows(0), transport_of(connected)
    before = connected.getsockopt(socket.SOL_SOCKET, 72)
    windows.begin(transport)
    assert connected.getsockopt(socket.SOL_SOCKET, 72) != before, "a size that was set ends autotuning"
    windows.widen(transport)
    assert connected.getsockopt(socket.SOL_SOCKET, 72) == before
