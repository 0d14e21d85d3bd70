"""How much a receiver takes while the relay pool is used up: what the kernel says of its socket."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, cast

import pytest

from proxy.relay.counters import RelayCounters
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
    turns = PoolTurns(asyncio.get_running_loop(), cast(Any, None), unsent_bytes, RelayCounters())
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        transport = cast(asyncio.BaseTransport, Transport(near))
        assert turns.room(transport, near.fileno(), is_tls=False) > 0
        fill(near)
        assert turns.room(transport, near.fileno(), is_tls=False) == 0
    turns.close()


class Reader:
    """A direction whose own code raises if it is `broken`."""

    def __init__(self, broken: bool) -> None:
        self.broken, self.heard = broken, 0

    def room_again(self) -> None:
        self.heard += 1
        if self.broken:
            raise ValueError


async def test_a_direction_that_raises_keeps_none_of_the_others_waiting_for_room() -> None:
    counters, pairs = RelayCounters(), [socket.socketpair() for _ in range(5)]
    turns = PoolTurns(asyncio.get_running_loop(), cast(Any, Memory()), 0, counters)
    readers = [Reader(number == 2) for number in range(5)]
    for reader, (near, _) in zip(readers, pairs, strict=True):
        turns.wait(cast(Any, reader), near.fileno())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [reader.heard for reader in readers] == [1] * 5
    assert counters.shared.internal_errors == {"relay": 1}
    turns.close()
    for near, far in pairs:
        near.close()
        far.close()


class Memory:
    """A pool of which nothing is free."""

    class books:
        @staticmethod
        def pool_free() -> bool:
            return False

        @staticmethod
        def pool_wait(before: int, after: int) -> None:
            """Have no books."""
