"""How much a socket of a relay may take, on real sockets: what the kernel says and is told, and who hears of room."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from proxy.relay.counters import RelayCounters
from proxy.relay.memory.windows import NARROW_BYTES, PROVEN_BYTES, ReceiveWindows
from proxy.relay.pooled.turns import PoolTurns


class Transport:
    """A transport of one socket."""

    def __init__(self, own: socket.socket) -> None:
        self.own = own

    def get_extra_info(self, _: str) -> socket.socket:
        return self.own


def transport_of(own: socket.socket) -> asyncio.BaseTransport:
    return cast(asyncio.BaseTransport, Transport(own))


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
        transport = transport_of(near)
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


@pytest.fixture
def connected() -> Iterator[socket.socket]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as own,
        listening.accept()[0],
    ):
        yield own


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
