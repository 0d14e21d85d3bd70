"""The receive buffers of request connections: who has a large one, and when it gives that back."""

import socket
from typing import Any

from proxy.config.values import SMALL_RECEIVE_BUFFER_BYTES
from proxy.net.buffers.receive_buffers import UNBOUNDED, ReceiveBuffers

SMALL = SMALL_RECEIVE_BUFFER_BYTES
LARGE = 1 << 20
BEYOND = 2 * (LARGE - SMALL)


class Connection:
    """A connection whose socket was made with the large buffer."""

    def __init__(self, buffers: ReceiveBuffers) -> None:
        self.size = LARGE
        self.quiet = True
        self.gone = False
        self.buffer = buffers.open(self)
        self.buffer.begin()

    def own_socket(self) -> Any:
        return None if self.gone else self

    def setsockopt(self, level: int, name: int, value: int) -> None:
        assert (level, name) == (socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.size = value

    def reads(self, size: int) -> None:
        self.buffer.announced_bytes = size
        self.buffer.answer_begins()


def test_a_quiet_connection_gives_it_to_the_next_and_one_with_questions_does_not() -> None:
    buffers = ReceiveBuffers(LARGE, BEYOND)
    first, second = Connection(buffers), Connection(buffers)
    first.reads(LARGE)
    first.quiet = False
    second.reads(LARGE)
    assert (first.size, second.size) == (LARGE, SMALL)
    first.quiet = True
    second.reads(LARGE)
    assert (first.size, second.size) == (SMALL, LARGE)


def test_without_a_sum_all_keep_what_they_were_made_with_and_a_sum_can_come_later() -> None:
    buffers = ReceiveBuffers(LARGE, None)
    connections = [Connection(buffers) for _ in range(3)]
    connections[0].quiet = False
    assert [connection.size for connection in connections] == [LARGE] * 3
    buffers.apply(BEYOND)
    assert [connection.size for connection in connections] == [LARGE, SMALL, SMALL]


def test_a_buffer_of_the_kernels_choice_is_left_alone() -> None:
    connection = Connection(UNBOUNDED)
    connection.reads(1 << 30)
    assert (connection.size, UNBOUNDED.memory.used_bytes) == (LARGE, 0)


def test_a_connection_that_is_gone_is_no_fault() -> None:
    connection = Connection(ReceiveBuffers(LARGE, BEYOND))
    connection.gone = True
    connection.reads(LARGE)
    assert connection.size == SMALL
    connection.buffer.close()
