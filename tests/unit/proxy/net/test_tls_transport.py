"""A TLS transport keeps a transport's promises: the tests of plain ones run over it, and what only TLS can do wrong."""

import asyncio
import os
import ssl
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import cast

import pytest

from protocol.slabs import SLAB_BYTES
from protocol.topic_list import TopicListAnswer
from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.pump import SEALED_STEP_BYTES, SMALL_SEALED_STEP_BYTES, Pump
from proxy.net.spill.body import Body
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import SharedReadBuffer
from proxy.requests.topic_lists.bodies import LeavingBody, PagedBody, SlabListBody
from tests.support.auth.tls import Sealer, client_context, served_config, tls_link
from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually
from tests.support.sockets.endpoints import Peer, RecordingEndpoint, hangup_watcher, tcp_pair
from tests.unit.proxy.net import test_transport as plain

RECORD = 16 * 1024


@pytest.fixture(autouse=True)
def over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of plain transports speak TLS."""
    monkeypatch.setattr(plain, "recording_link", tls_link)


class TestReadingOverTls(plain.TestReading):
    """Bytes, pauses, ends, resets and crashes, as without TLS."""


class TestClosingOverTls(plain.TestClosing):
    """What is written goes out first, and what nobody takes does not stay, as without TLS."""


class TestTheKernelsQueueOverTls(plain.TestTheKernelsQueue):
    """The kernel's queue is that of the socket below."""


class TestWritingOverTls(plain.TestWritingContract):
    """Unsent bytes, their order, and who waits for them, as without TLS."""

    @pytest.fixture
    def link(self) -> plain.Link:
        return partial(tls_link, kernel_buffer_bytes=plain.BUFFER_BYTES)


class Reader(RecordingEndpoint):
    """Count the deliveries, and stop after `stop_after` of them."""

    stop_after = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: SharedReadBuffer, hangup: HangupWatcher) -> None:
        super().__init__(loop, shared, hangup)
        self.deliveries = 0

    def data_arrived(self, count: int) -> None:
        super().data_arrived(count)
        self.deliveries += 1
        if self.deliveries == self.stop_after:
            self.pause_reading()


class StopsAtOnce(Reader):
    stop_after = 1


class BreaksBehindTheFirst(StopsAtOnce):
    def get_buffer(self, sizehint: int) -> memoryview:
        if self.deliveries:
            raise RuntimeError("a fault of the proxy's")
        return super().get_buffer(sizehint)


def below(endpoint: RecordingEndpoint) -> TlsTransport:
    assert isinstance(endpoint.transport, TlsTransport)
    return endpoint.transport


class TestRecords:
    @pytest.mark.parametrize("cut", [1, 4, 5, 100, RECORD])
    @on_both_loops
    async def test_a_record_that_comes_in_pieces_is_read_when_it_is_whole(self, cut: int) -> None:
        async with tls_link() as (endpoint, peer):
            data = os.urandom(RECORD)
            record = peer.sealer.seal(data)
            for start in range(0, len(record), max(cut, len(record) // 50)):
                await Peer.send(peer, record[start : start + max(cut, len(record) // 50)])
                await asyncio.sleep(0)
            await eventually(lambda: endpoint.arrived == data)

    @pytest.mark.parametrize(
        "garbage", [os.urandom(200), b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"]
    )
    @on_both_loops
    async def test_garbage_ends_the_connection_and_is_named(self, garbage: bytes) -> None:
        async with tls_link() as (endpoint, peer), tls_link() as (whole, other):
            await Peer.send(peer, garbage)
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.TLS_ERROR]
            await other.send(b"fine")
            await eventually(lambda: whole.arrived == b"fine")

    @on_both_loops
    async def test_a_fault_while_kept_records_are_opened_ends_the_connection_and_is_reported(self) -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: reported.append(told["exception"]))
        async with tls_link(BreaksBehindTheFirst) as (endpoint, peer):
            await peer.send(bytes(RECORD))
            await eventually(lambda: endpoint.arrived)
            endpoint.resume_reading()
            await eventually(lambda: endpoint.ends == [DisconnectCause.INTERNAL_ERROR])
            assert await peer.read(1) == b""
        assert len(reported) == 1


class TestEnds:
    @pytest.mark.parametrize("unread", [b"", b"the last words"])
    @on_both_loops
    async def test_close_notify_is_the_end_of_the_stream_behind_the_data(self, unread: bytes) -> None:
        async with tls_link() as (endpoint, peer):
            await Peer.send(peer, peer.sealer.seal(unread) + peer.sealer.say_close_notify())
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.CLIENT_CLOSED]
            assert endpoint.arrived == unread

    @on_both_loops
    async def test_an_end_that_came_with_more_than_was_taken_waits_for_the_rest(self) -> None:
        async with tls_link(StopsAtOnce) as (endpoint, peer):
            # Watched for hang-ups while paused: only close_notify, no FIN.
            await Peer.send(peer, peer.sealer.seal(bytes(RECORD)) + peer.sealer.say_close_notify())
            await eventually(lambda: not endpoint.reading)
            assert endpoint.ends == []
            endpoint.resume_reading()
            await eventually(lambda: endpoint.ends)
            assert len(endpoint.arrived) == RECORD

    @on_both_loops
    async def test_closing_says_close_notify_behind_what_was_written(self) -> None:
        async with tls_link() as (endpoint, peer):
            endpoint.write(b"last")
            endpoint.close(DisconnectCause.SHUTDOWN)
            assert await peer.read(5) == b"last"
            assert peer.sealer.opened(1) == b""

    @on_both_loops
    async def test_a_write_that_is_pending_is_ciphertext_and_nothing_else(self) -> None:
        async with tls_link(kernel_buffer_bytes=8192) as (endpoint, peer):
            data = memoryview(bytearray(os.urandom(1 << 20)))
            sent = bytes(data)
            endpoint.write(data)
            assert endpoint.write_pending
            # The place may be used again at once.
            data[:] = bytes(1 << 20)
            assert await peer.read(len(sent)) == sent


class Lone:
    """A server's end whose handshake is not done, and what became of it."""

    def __init__(self) -> None:
        self.served, self.client = tcp_pair()
        self.client.setblocking(False)
        self.failures: list[TlsFailed] = []
        self.made: list[RecordingEndpoint] = []

    async def open(self, watcher: HangupWatcher) -> TlsTransport:
        loop = asyncio.get_running_loop()

        def make() -> RecordingEndpoint:
            self.made.append(RecordingEndpoint(loop, SharedReadBuffer(), watcher))
            return self.made[-1]

        shared = TlsShared(LoopBudget(loop, perf_counter))
        transport = TlsTransport(shared, served_config(), make, self.failures.append)
        await loop.create_connection(lambda: transport, sock=self.served)
        return transport

    async def fails(self, reason: str, cause: DisconnectCause = DisconnectCause.TLS_HANDSHAKE_FAILED) -> None:
        await eventually(lambda: self.failures, "a failure")
        self.client.close()
        assert [(failure.reason, failure.cause) for failure in self.failures] == [(reason, cause)]
        assert not self.made


class TestHandshakes:
    @on_both_loops
    async def test_a_client_that_drips_gets_in(self) -> None:
        async with hangup_watcher() as watcher:
            lone = Lone()
            await lone.open(watcher)
            sealer, loop = Sealer(client_context()), asyncio.get_running_loop()
            with pytest.raises(ssl.SSLWantReadError):
                sealer.tls.do_handshake()
            for byte in sealer.outgoing.read():
                await loop.sock_sendall(lone.client, bytes((byte,)))
            await sealer.more(lone.client)
            await sealer.shake(lone.client)
            await eventually(lambda: lone.made)
            lone.client.close()
            await eventually(lambda: lone.made[0].ends)

    @on_both_loops
    async def test_a_hello_that_claims_too_much_is_refused_by_its_first_bytes(self) -> None:
        async with hangup_watcher() as watcher:
            lone = Lone()
            await lone.open(watcher)
            lone.client.send(b"\x16\x03\x01\x02\x00\x01" + (131_000).to_bytes(3, "big"))
            await lone.fails("other")
            assert "claims 131000 bytes" in lone.failures[0].detail

    @on_both_loops
    async def test_bytes_behind_the_handshake_are_the_first_the_endpoint_gets(self) -> None:
        async with hangup_watcher() as watcher:
            lone = Lone()
            await lone.open(watcher)
            sealer, loop = Sealer(client_context()), asyncio.get_running_loop()
            for _ in range(2):
                try:
                    sealer.tls.do_handshake()
                except ssl.SSLWantReadError:
                    await loop.sock_sendall(lone.client, sealer.outgoing.read())
                    await sealer.more(lone.client)
            # The Finished and a first frame in one segment.
            await loop.sock_sendall(lone.client, sealer.outgoing.read() + sealer.seal(b"CONNECT"))
            await eventually(lambda: lone.made and lone.made[0].arrived == b"CONNECT")
            lone.client.close()
            await eventually(lambda: lone.made[0].ends)


# --- bodies ---------------------------------------------------------------------------------------

PREFIX = b"request 7:"
Made = Callable[[bytes], Body]


class Slabs:
    """An answer as far as bodies go: slabs, handed over once."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._slabs = [bytearray(data[at : at + SLAB_BYTES]) for at in range(0, len(data), SLAB_BYTES)]

    def hand_over(self) -> list[bytearray]:
        return self._slabs

    def give(self, slab: bytearray) -> None:
        # Another list would use the slab: nothing of it may be read any more.
        slab[:] = bytes(len(slab))


def paged(data: bytes) -> Body:
    body = PagedBody()
    body.append(memoryview(data))
    return body


def slabs(data: bytes) -> Body:
    return SlabListBody(cast(TopicListAnswer, Slabs(data)))


def leaving(data: bytes) -> Body:
    return LeavingBody(cast(TopicListAnswer, Slabs(data)), lambda count: None)


@pytest.mark.parametrize("make", [paged, slabs, leaving])
@pytest.mark.parametrize("size", [0, 1, SEALED_STEP_BYTES, SLAB_BYTES, 3 * SLAB_BYTES + 7])
class TestBodies:
    @on_both_loops
    async def test_a_body_arrives_whole_and_is_done_when_it_has_left(self, make: Made, size: int) -> None:
        loop, data = asyncio.get_running_loop(), os.urandom(size)
        body, pump = make(data), Pump(loop, perf_counter)
        async with tls_link(kernel_buffer_bytes=4096) as (slow, late), tls_link() as (fast, eager):
            moved: list[int] = []
            writes = [loop.create_task(pump.send(fast, PREFIX, body, moved.append))]
            if not isinstance(body, LeavingBody):
                # One that is for many; its slow reader keeps one record in user space at most.
                writes.append(loop.create_task(pump.send(slow, PREFIX, body, lambda count: None)))
            assert await eager.read(len(PREFIX) + size) == PREFIX + data
            await writes[0]
            assert sum(moved) == len(PREFIX) + size
            assert below(slow).get_write_buffer_size() <= SMALL_SEALED_STEP_BYTES + len(PREFIX) + 64
            if len(writes) > 1:
                assert await late.read(len(PREFIX) + size) == PREFIX + data
                await writes[1]
            assert len(pump) == 0
        pump.close()
        if isinstance(body, PagedBody):
            body.close()
