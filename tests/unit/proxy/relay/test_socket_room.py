"""The window towards a broker, on real sockets: narrow when a relay begins."""

import asyncio
import errno
import socket
from typing import cast

import pytest

from proxy.relay.memory import windows
from proxy.relay.memory.windows import NARROW_BYTES, can_unlock, narrow


class Transport:
    """A transport of one socket."""

    def __init__(self, own: socket.socket) -> None:
        self.own = own

    def get_extra_info(self, _: str) -> socket.socket:
        return self.own


def test_a_relay_begins_with_a_narrow_window() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as own,
        listening.accept()[0],
    ):
        narrow(cast(asyncio.BaseTransport, Transport(own)))
        # The kernel doubles a size.
        assert receive_buffer(own) == 2 * NARROW_BYTES
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP) <= 2 * NARROW_BYTES


def test_a_kernel_that_cannot_widen_a_window_again_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def before_5_15(_: socket.socket) -> bool:
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(windows, "receive_is_set", before_5_15)
    assert not can_unlock()


def receive_buffer(own: socket.socket) -> int:
    return own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
