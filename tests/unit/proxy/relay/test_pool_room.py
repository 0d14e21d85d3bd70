"""How much a receiver takes while the relay pool is used up: what the kernel says of its socket."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, cast

import pytest

from proxy.relay.pooled.turns import PoolTurns


class Transport:
    """A transport of one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, _: str) -> socket.socket:
        return self._sock


def fill(sock: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            sock.send(bytes(4096))


@pytest.mark.parametrize("unsent_bytes", [0, 65536])
async def test_a_unix_socket_has_room_until_its_reader_stands_still(unsent_bytes: int) -> None:
    turns = PoolTurns(asyncio.get_running_loop(), cast(Any, None), unsent_bytes)
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        transport = cast(asyncio.BaseTransport, Transport(near))
        assert turns.room(transport, near.fileno(), is_tls=False) > 0
        fill(near)
        assert turns.room(transport, near.fileno(), is_tls=False) == 0
    turns.close()
