"""A TLS transport keeps a transport's promises: the tests of plain ones run over it, and what only TLS can do wrong."""

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import cast

import pytest

from protocol.slabs import SLAB_BYTES
from protocol.topic_list import TopicListAnswer
from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.hangup import HangupWatcher
from proxy.net.pump import SEALED_STEP_BYTES, SMALL_SEALED_STEP_BYTES, Body, Pump
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.shared import RECORD_BYTES, TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import SMALL_READ_BYTES, SharedReadBuffer
from proxy.requests.topic_lists.bodies import LeavingBody, PagedBody, SlabListBody
from tests.support.auth.tls import Sealer, client_context, server_context, tls_link
from tests.support.loops.loops import LoopFactory, both_loops, eventually, run_on
from tests.support.sockets.endpoints import Peer, RecordingEndpoint, hangup_watcher, tcp_pair
from tests.unit.proxy.net import test_transport as plain

RECORD = 16 * 1024


@pytest.fixture(autouse=True)
def over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests of plain transports speak TLS."""
    monkeypatch.setattr(plain, "recording_link", tls_link)
    monkeypatch.setattr(plain, "tcp_link", tls_link)


class TestReadingOverTls(plain.TestReading):
    """Bytes, pauses, ends, resets and crashes, as without TLS."""


class TestClosingOverTls(plain.TestClosing):
    """What is written goes out first, and what nobody takes does not stay, as without TLS."""


class TestTheKernelsQueueOverTls(plain.TestTheKernelsQueue):
    """The kernel's queue is that of the socket below."""


@both_loops
class TestWritingOverTls:
    """The contract of `plain.TestWritingContract`, test by test."""

    @pytest.mark.parametrize("name", [name for name in vars(plain.TestWritingContract) if name.startswith("test_")])
    def test_the_contract_of_plain_transports_holds(self, loop_factory: LoopFactory, name: str) -> None:
        getattr(plain.TestWritingContract(), name)(loop_factory, small_link)


def small_link() -> AbstractAsyncContextManager[tuple[RecordingEndpoint, Peer]]:
    return tls_link(kernel_buffer_bytes=plain.BUFFER_BYTES)


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


class LargeReader(Reader):
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.large


def below(endpoint: RecordingEndpoint) -> TlsTransport:
    assert isinstance(endpoint.transport, TlsTransport)
    return endpoint.transport


@both_loops
class TestRecords:
    @pytest.mark.parametrize("cut", [1, 4, 5, 100, RECORD])
    def test_a_record_that_comes_in_pieces_is_read_when_it_is_whole(self, loop_factory: LoopFactory, cut: int) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, peer):
                data = os.urandom(RECORD)
                record = peer.sealer.seal(data)
                for start in range(0, len(record), max(cut, len(record) // 50)):
                    await Peer.send(peer, record[start : start + max(cut, len(record) // 50)])
                    await asyncio.sleep(0)
                await eventually(lambda: endpoint.arrived == data)

        run_on(loop_factory, main())

    def test_many_records_of_one_read_are_one_delivery(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(LargeReader) as (endpoint, peer):
                assert isinstance(endpoint, Reader)
                records = b"".join(peer.sealer.seal(b"%03d" % number) for number in range(100))
                endpoint.pause_reading()
                await Peer.send(peer, records)
                endpoint.resume_reading()
                await eventually(lambda: len(endpoint.arrived) == 300)
                assert endpoint.deliveries == 1

        run_on(loop_factory, main())

    def test_a_full_place_is_delivered_and_the_next_one_asked_for(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(Reader) as (endpoint, peer):
                assert isinstance(endpoint, Reader)
                data = os.urandom(RECORD)
                await peer.send(data)
                await eventually(lambda: endpoint.arrived == data)
                assert endpoint.deliveries == RECORD // SMALL_READ_BYTES

        run_on(loop_factory, main())

    def test_a_paused_endpoint_holds_a_small_read_and_a_record_at_most(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(StopsAtOnce) as (endpoint, peer):
                sent = peer.send_until_full()
                await eventually(lambda: not endpoint.reading)
                transport = below(endpoint)
                assert len(endpoint.arrived) == SMALL_READ_BYTES
                assert 0 < len(transport._held) + transport._ssl_object.pending() <= SMALL_READ_BYTES + RECORD_BYTES
                held = (len(transport._held), transport._ssl_object.pending())
                for _ in range(5):
                    await asyncio.sleep(0)
                assert held == (len(transport._held), transport._ssl_object.pending())
                endpoint.resume_reading()
                await eventually(lambda: len(endpoint.arrived) == sent)

        run_on(loop_factory, main())

    def test_resuming_delivers_nothing_before_it_returns(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(StopsAtOnce) as (endpoint, peer):
                await peer.send(bytes(RECORD))
                await eventually(lambda: not endpoint.reading)
                arrived = len(endpoint.arrived)
                endpoint.resume_reading()
                assert len(endpoint.arrived) == arrived
                await eventually(lambda: len(endpoint.arrived) == RECORD)

        run_on(loop_factory, main())

    def test_two_connections_share_the_bios_and_nothing_else(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            shared = TlsShared(LoopBudget(asyncio.get_running_loop(), perf_counter))
            async with tls_link(shared=shared) as (one, its_peer), tls_link(shared=shared) as (other, peer):
                first, second = os.urandom(200_000), os.urandom(200_000)
                await asyncio.gather(its_peer.send(first), peer.send(second))
                await eventually(lambda: (bytes(one.arrived), bytes(other.arrived)) == (first, second))

        run_on(loop_factory, main())

    @pytest.mark.parametrize(
        "garbage", [os.urandom(200), b"\x17\x03\x03\x00\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"]
    )
    def test_garbage_ends_the_connection_and_is_named(self, loop_factory: LoopFactory, garbage: bytes) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, peer), tls_link() as (whole, other):
                await Peer.send(peer, garbage)
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.TLS_ERROR]
                await other.send(b"fine")
                await eventually(lambda: whole.arrived == b"fine")

        run_on(loop_factory, main())


@both_loops
class TestEnds:
    @pytest.mark.parametrize("unread", [b"", b"the last words"])
    def test_close_notify_is_the_end_of_the_stream_behind_the_data(
        self, loop_factory: LoopFactory, unread: bytes
    ) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, peer):
                await Peer.send(peer, peer.sealer.seal(unread) + peer.sealer.say_close_notify())
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.CLIENT_CLOSED]
                assert endpoint.arrived == unread

        run_on(loop_factory, main())

    @pytest.mark.parametrize("pieces", [[b"one"], [b"one", b"two"]])
    def test_what_cannot_be_encrypted_ends_the_connection_and_leaves_nothing_for_others(
        self, loop_factory: LoopFactory, pieces: list[bytes]
    ) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, _):
                transport = below(endpoint)

                def failing(data: bytes | bytearray | memoryview) -> int:
                    transport._shared.outgoing.write(b"half a record")
                    raise ssl.SSLError(1, "[SSL] out of luck")

                transport._encrypt = failing
                transport.write(pieces[0]) if len(pieces) == 1 else transport.writelines(pieces)
                assert not transport._shared.outgoing.pending
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.TLS_ERROR]

        run_on(loop_factory, main())

    def test_a_fin_in_the_middle_of_a_record_is_an_end_too(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, peer):
                await peer.send(b"whole")
                await Peer.send(peer, peer.sealer.seal(bytes(RECORD))[:1000])
                peer.half_close()
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.CLIENT_CLOSED]
                assert endpoint.arrived == b"whole"

        run_on(loop_factory, main())

    def test_an_end_that_came_with_more_than_was_taken_waits_for_the_rest(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(StopsAtOnce) as (endpoint, peer):
                # Watched for hang-ups while paused: only close_notify, no FIN.
                await Peer.send(peer, peer.sealer.seal(bytes(RECORD)) + peer.sealer.say_close_notify())
                await eventually(lambda: not endpoint.reading)
                assert endpoint.ends == []
                endpoint.resume_reading()
                await eventually(lambda: endpoint.ends)
                assert len(endpoint.arrived) == RECORD

        run_on(loop_factory, main())

    def test_closing_says_close_notify_behind_what_was_written(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, peer):
                endpoint.write(b"last")
                endpoint.close(DisconnectCause.SHUTDOWN)
                assert await peer.read(5) == b"last"
                assert peer.sealer.opened(1) == b""

        run_on(loop_factory, main())

    def test_a_write_that_is_pending_is_ciphertext_and_nothing_else(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(kernel_buffer_bytes=8192) as (endpoint, peer):
                data = memoryview(bytearray(os.urandom(1 << 20)))
                sent = bytes(data)
                endpoint.write(data)
                assert endpoint.write_pending
                # The place may be used again at once.
                data[:] = bytes(1 << 20)
                assert await peer.read(len(sent)) == sent

        run_on(loop_factory, main())

    def test_there_is_no_half_close(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link() as (endpoint, _):
                assert not below(endpoint).can_write_eof()

        run_on(loop_factory, main())


class Lone:
    """A server's end whose handshake is not done, and what became of it."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.served, self.client = tcp_pair()
        self.client.setblocking(False)
        self.failures: list[TlsFailed] = []
        self.made: list[RecordingEndpoint] = []
        self.context = server_context() if context is None else context

    async def open(self, watcher: HangupWatcher) -> TlsTransport:
        loop = asyncio.get_running_loop()

        def make() -> RecordingEndpoint:
            self.made.append(RecordingEndpoint(loop, SharedReadBuffer(), watcher))
            return self.made[-1]

        shared = TlsShared(LoopBudget(loop, perf_counter))
        transport = TlsTransport(shared, self.context, make, self.failures.append, server_side=True)
        await loop.create_connection(lambda: transport, sock=self.served)
        return transport

    async def fails(self, reason: str, cause: DisconnectCause = DisconnectCause.TLS_HANDSHAKE_FAILED) -> None:
        await eventually(lambda: self.failures, "a failure")
        self.client.close()
        assert [(failure.reason, failure.cause) for failure in self.failures] == [(reason, cause)]
        assert not self.made


@both_loops
class TestHandshakes:
    @pytest.mark.parametrize("first", [b"\x00\x00\x00\x10", b"GET / HTTP/1.1\r\n\r\n", b"PROXY"])
    def test_a_client_without_tls_is_named(self, loop_factory: LoopFactory, first: bytes) -> None:
        async def main() -> None:
            async with hangup_watcher() as watcher:
                lone = Lone()
                await lone.open(watcher)
                lone.client.send(first)
                await lone.fails("not_tls", DisconnectCause.NOT_TLS)

        run_on(loop_factory, main())

    @pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
    def test_a_client_that_leaves_is_named(self, loop_factory: LoopFactory, sent: bytes) -> None:
        async def main() -> None:
            async with hangup_watcher() as watcher:
                lone = Lone()
                await lone.open(watcher)
                lone.client.send(sent)
                await asyncio.sleep(0)
                lone.client.close()
                await lone.fails("gone")

        run_on(loop_factory, main())

    def test_garbage_behind_a_good_beginning_is_named(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with hangup_watcher() as watcher:
                lone = Lone()
                await lone.open(watcher)
                lone.client.send(b"\x16\x03\x01\x00\x20" + bytes(32))
                await lone.fails("other")

        run_on(loop_factory, main())

    def test_a_client_that_is_asked_for_another_key_share_gets_in(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            context = server_context()
            context.set_ecdh_curve("secp384r1")
            async with hangup_watcher() as watcher:
                lone = Lone(context)
                await lone.open(watcher)
                await Sealer(client_context()).shake(lone.client)
                await eventually(lambda: lone.made)
                lone.client.close()
                await eventually(lambda: lone.made[0].ends)

        run_on(loop_factory, main())

    @pytest.mark.parametrize("behind_a_good_one", [False, True])
    def test_a_hello_that_claims_too_much_is_refused_by_its_first_bytes(
        self, loop_factory: LoopFactory, behind_a_good_one: bool
    ) -> None:
        async def main() -> None:
            context = server_context()
            context.set_ecdh_curve("secp384r1")
            async with hangup_watcher() as watcher:
                lone = Lone(context)
                await lone.open(watcher)
                sealer = Sealer(client_context())
                with pytest.raises(ssl.SSLWantReadError):
                    sealer.tls.do_handshake()
                first = sealer.outgoing.read() if behind_a_good_one else b""
                # In the same segment: OpenSSL would read it in the same call.
                lone.client.send(first + b"\x16\x03\x01\x02\x00\x01" + (131_000).to_bytes(3, "big"))
                await lone.fails("other")
                assert "claims 131000 bytes" in lone.failures[0].detail

        run_on(loop_factory, main())

    def test_a_version_that_is_not_spoken_is_named(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            context = server_context()
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            old = client_context()
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            async with hangup_watcher() as watcher:
                lone = Lone(context)
                await lone.open(watcher)
                with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
                    await Sealer(old).shake(lone.client)
                await lone.fails("version_or_cipher")

        run_on(loop_factory, main())

    def test_a_missing_client_certificate_is_named(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            context = server_context(clients_from="first")
            async with hangup_watcher() as watcher:
                lone = Lone(context)
                await lone.open(watcher)
                # With TLS 1.3 a client is done before the server has looked at its certificate.
                await Sealer(client_context()).shake(lone.client)
                await lone.fails("certificate")

        run_on(loop_factory, main())

    def test_a_client_that_does_not_trust_us_is_named(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with hangup_watcher() as watcher:
                lone = Lone()
                await lone.open(watcher)
                with pytest.raises(ssl.SSLCertVerificationError):
                    await Sealer(client_context("second")).shake(lone.client)
                await lone.fails("peer_refused")

        run_on(loop_factory, main())

    def test_bytes_behind_the_handshake_are_the_first_the_endpoint_gets(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
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

        run_on(loop_factory, main())

    def test_a_second_handshake_is_refused(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            context = server_context()
            context.options |= ssl.OP_NO_RENEGOTIATION
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            async with hangup_watcher() as watcher:
                lone = Lone(context)
                await lone.open(watcher)
                sealer = Sealer(client_context())
                await sealer.shake(lone.client)
                await eventually(lambda: lone.made)
                # What asks for it is a handshake record behind the handshake; one that cannot be opened ends it all.
                await asyncio.get_running_loop().sock_sendall(lone.client, b"\x16\x03\x03\x00\x20" + bytes(32))
                await eventually(lambda: lone.made[0].ends)
                assert lone.made[0].ends == [DisconnectCause.TLS_ERROR]
                lone.client.close()

        run_on(loop_factory, main())


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


@both_loops
@pytest.mark.parametrize("make", [paged, slabs, leaving])
@pytest.mark.parametrize("size", [0, 1, SEALED_STEP_BYTES, SLAB_BYTES, 3 * SLAB_BYTES + 7])
class TestBodies:
    def test_a_body_arrives_whole_and_is_done_when_it_has_left(
        self, loop_factory: LoopFactory, make: Made, size: int
    ) -> None:
        async def main() -> None:
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

        run_on(loop_factory, main())


@both_loops
def test_a_client_that_leaves_in_the_middle_of_a_body_ends_its_own_write_only(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        loop, data = asyncio.get_running_loop(), os.urandom(1 << 20)
        body, pump = slabs(data), Pump(loop, perf_counter)
        async with tls_link(kernel_buffer_bytes=4096) as (slow, leaver), tls_link() as (fast, eager):
            lost = loop.create_task(pump.send(slow, PREFIX, body, lambda count: None))
            await eventually(lambda: slow.write_pending)
            leaver.reset()
            with pytest.raises(ConnectionClosed):
                await lost
            kept = loop.create_task(pump.send(fast, PREFIX, body, lambda count: None))
            assert await eager.read(len(PREFIX) + len(data)) == PREFIX + data
            await kept
            assert len(pump) == 0
        pump.close()

    run_on(loop_factory, main())
