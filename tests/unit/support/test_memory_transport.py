"""A transport in memory takes list bodies at its descriptor as a socket does: the same test on both."""

import asyncio
import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

import pytest

from proxy.net.pump import Body
from proxy.requests.topic_lists.bodies import LeavingBody, PagedBody, SlabListBody
from tests.support.brokers.answers import answer_of
from tests.support.sockets.memory_transport import MemoryTransport

PREFIX = b"prefix of a frame"
SIZE = 1_000_000
NOTHING = memoryview(b"")


@dataclass
class Sink:
    """Where a body is written to, and its reader."""

    fd: int
    read: Callable[[], bytes]


@contextmanager
def kernel_sink() -> Iterator[Sink]:
    """Give a socket that takes what the kernel likes."""
    sock, peer = socket.socketpair()
    with sock, peer:
        for each in (sock, peer):
            each.setblocking(False)

        def read() -> bytes:
            data = b""
            with suppress(BlockingIOError):
                while piece := peer.recv(SIZE):
                    data += piece
            return data

        yield Sink(sock.fileno(), read)


@contextmanager
def memory_sink() -> Iterator[Sink]:
    """Give a transport that takes 100,000 bytes, and as many more with each read."""
    loop = asyncio.new_event_loop()
    transport = MemoryTransport(loop, room=100_000)
    transport.connect(asyncio.Protocol())

    def read() -> bytes:
        data = bytes(transport.peer_bytes)
        transport.peer_bytes.clear()
        transport.take(100_000)
        return data

    yield Sink(transport.get_extra_info("socket").fileno(), read)
    transport.abort()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def leaving() -> Body:
    return LeavingBody(answer_of(SIZE), lambda count: None)


def slabs() -> Body:
    return SlabListBody(answer_of(SIZE))


def pages() -> PagedBody:
    body = PagedBody()
    for piece in answer_of(SIZE).consume():
        body.append(piece)
    return body


class Writing:
    """A body on its way into a sink."""

    def __init__(self, body: Body, fd: int) -> None:
        self.body = body
        self.fd = fd
        self.position = -len(PREFIX)
        self.cut = 0

    def until_full(self) -> None:
        """Write until the sink takes no more, or there is no more."""
        try:
            while self.position < self.body.size:
                prefix = memoryview(PREFIX)[self.position :] if self.position < 0 else NOTHING
                taken = self.body.write(self.fd, prefix, self.position)
                assert taken > 0
                self.position += taken
        except BlockingIOError:
            self.cut += 1


@pytest.mark.parametrize("sink", [kernel_sink, memory_sink])
@pytest.mark.parametrize("make", [leaving, slabs, pages])
def test_a_body_passes_through_a_sink_that_is_full_now_and_then(
    sink: Callable[[], AbstractContextManager[Sink]], make: Callable[[], Body]
) -> None:
    with sink() as into, select.epoll() as room:
        writing, arrived = Writing(make(), into.fd), b""
        writing.until_full()
        assert 0 < writing.position < SIZE
        room.register(into.fd, select.EPOLLOUT | select.EPOLLET)
        room.poll(0)
        while writing.position < writing.body.size:
            assert room.poll(0) == []
            arrived += into.read()
            assert room.poll(0), "expected to hear that there is room"
            before = writing.position
            writing.until_full()
            assert writing.position > before
        arrived += into.read()
        expected = b"".join(bytes(piece) for piece in answer_of(SIZE).consume())
        assert arrived == PREFIX + expected
        if isinstance(writing.body, PagedBody):
            # A socket pair takes whole pages, or nothing.
            writing.body.close()
        else:
            assert writing.cut, "expected a write of which a part was taken"


def test_other_descriptors_are_the_kernels_beside_a_transport_in_memory() -> None:
    with memory_sink() as memory, kernel_sink() as kernel:
        body = pages()
        assert memory.fd != kernel.fd
        writing = Writing(body, kernel.fd)
        writing.until_full()
        assert kernel.read() == PREFIX + os.pread(body.pages_fd, writing.position, 0)
        assert memory.read() == b""
        body.close()
