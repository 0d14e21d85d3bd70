import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from proxy.core.errors import ConnectionClosed, DisconnectCause
from proxy.net.transport import LARGE_READ_BYTES, SharedReadBuffer, peer_name
from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually
from tests.support.sockets.endpoints import Peer, RecordingEndpoint, hangup_watcher, recording_link
from tests.support.sockets.memory_transport import MemoryTransport

BUFFER_BYTES = 8192
# More than the kernel keeps for a peer that does not read.
MUCH = 4 * 1024 * 1024


class MemoryPeer:
    """The peer of a memory transport, with the words of the real one."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport
        self._read = 0

    async def read(self, count: int) -> bytes:
        self._transport.take(count)
        start, self._read = self._read, self._read + count
        return bytes(self._transport.peer_bytes[start : self._read])


Link = Callable[[], AbstractAsyncContextManager[tuple[RecordingEndpoint, Peer | MemoryPeer]]]


@asynccontextmanager
async def memory_link() -> AsyncIterator[tuple[RecordingEndpoint, Peer | MemoryPeer]]:
    loop = asyncio.get_running_loop()
    async with hangup_watcher() as watcher:
        transport = MemoryTransport(loop, room=BUFFER_BYTES)
        endpoint = RecordingEndpoint(loop, SharedReadBuffer(), watcher)
        transport.connect(endpoint)
        yield endpoint, MemoryPeer(transport)
        endpoint.abort(DisconnectCause.SHUTDOWN)
        await eventually(lambda: endpoint.transport is None)


@asynccontextmanager
async def tcp_link() -> AsyncIterator[tuple[RecordingEndpoint, Peer | MemoryPeer]]:
    async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, peer):
        yield endpoint, peer


def buffered(endpoint: RecordingEndpoint) -> int:
    assert endpoint.transport is not None
    return endpoint.transport.get_write_buffer_size()


class FailingEndpoint(RecordingEndpoint):
    """A connection whose end raises."""

    def lost(self, cause: DisconnectCause) -> None:
        raise RecursionError


@pytest.mark.parametrize("end", [FailingEndpoint.close, FailingEndpoint.abort, FailingEndpoint.reset])
async def test_a_connection_whose_end_raises_gives_its_socket_up(
    end: Callable[[FailingEndpoint, DisconnectCause], None],
) -> None:
    async with hangup_watcher() as watcher:
        transport = MemoryTransport(asyncio.get_running_loop(), room=BUFFER_BYTES)
        endpoint = FailingEndpoint(asyncio.get_running_loop(), SharedReadBuffer(), watcher)
        transport.connect(endpoint)
        with pytest.raises(RecursionError):
            end(endpoint, DisconnectCause.SHUTDOWN)
        assert transport.is_closing()
        await eventually(lambda: endpoint.transport is None)


class TestWritingContract:
    """What `Output` and the permits rely on; the memory transport of the unit tests obeys it too."""

    @pytest.fixture(params=[memory_link, tcp_link])
    def link(self, request: pytest.FixtureRequest) -> Link:
        found: Link = request.param
        return found

    @on_both_loops
    async def test_a_write_that_did_not_pause_has_left_user_space(self, link: Link) -> None:
        async with link() as (endpoint, peer):
            endpoint.write(b"one")
            assert (endpoint.write_pending, buffered(endpoint)) == (False, 0)
            await endpoint.drained()
            assert await peer.read(3) == b"one"

    @on_both_loops
    async def test_drained_waits_for_the_last_byte(self, link: Link) -> None:
        async with link() as (endpoint, peer):
            endpoint.write(bytes(MUCH))
            assert endpoint.write_pending
            assert buffered(endpoint) > 0
            waiter = asyncio.get_running_loop().create_task(endpoint.drained())
            await asyncio.sleep(0)
            assert not waiter.done()
            assert len(await peer.read(MUCH)) == MUCH
            await waiter
            assert (endpoint.write_pending, buffered(endpoint)) == (False, 0)

    @on_both_loops
    async def test_a_write_behind_a_pending_one_keeps_its_place(self, link: Link) -> None:
        async with link() as (endpoint, peer):
            endpoint.write(b"a" * MUCH)
            endpoint.writelines([b"b" * 10, b"c"])
            assert await peer.read(MUCH + 11) == b"a" * MUCH + b"b" * 10 + b"c"
            await endpoint.drained()

    @on_both_loops
    async def test_who_waits_hears_that_the_connection_ended(self, link: Link) -> None:
        async with link() as (endpoint, _):
            endpoint.write(bytes(MUCH))
            waiter = asyncio.get_running_loop().create_task(endpoint.drained())
            await asyncio.sleep(0)
            endpoint.abort(DisconnectCause.IDLE)
            with pytest.raises(ConnectionClosed) as caught:
                await waiter
            assert caught.value.cause is DisconnectCause.IDLE
            with pytest.raises(ConnectionClosed):
                await endpoint.drained()

    @on_both_loops
    async def test_a_loss_is_told_once_and_writing_after_it_does_nothing(self, link: Link) -> None:
        async with link() as (endpoint, _):
            endpoint.abort(DisconnectCause.IDLE)
            endpoint.close(DisconnectCause.SHUTDOWN)
            endpoint.write(b"late")
            endpoint.writelines([b"late"])
            await eventually(lambda: endpoint.transport is None)
            assert endpoint.ends == [DisconnectCause.IDLE]
            assert not endpoint.open


class PausesAtOnce(RecordingEndpoint):
    def adopt(self, transport: asyncio.Transport) -> None:
        super().adopt(transport)
        self.pause_reading()


class PausesAfterEach(RecordingEndpoint):
    def data_arrived(self, count: int) -> None:
        super().data_arrived(count)
        self.pause_reading()


class TestTheKernelsQueue:
    @on_both_loops
    async def test_a_reset_forgets_it_and_the_peer_learns_at_once(self) -> None:
        async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, peer):
            endpoint.write(bytes(1 << 20))
            endpoint.reset(DisconnectCause.WRITE_STALLED)
            endpoint.reset(DisconnectCause.SHUTDOWN)
            assert endpoint.ends == [DisconnectCause.WRITE_STALLED]
            with pytest.raises(ConnectionResetError):
                await peer.read(1 << 20)


class TestReading:
    @pytest.mark.parametrize("kind", [PausesAtOnce, PausesAfterEach])
    @on_both_loops
    async def test_bytes_around_a_pause_are_not_lost(self, kind: type[RecordingEndpoint]) -> None:
        async with recording_link(kind) as (endpoint, peer):
            data = bytes(range(256)) * 200
            await peer.send(data)
            resumed = 0
            while len(endpoint.arrived) < len(data):
                assert endpoint.open
                endpoint.resume_reading()
                resumed += 1
                await asyncio.sleep(0)
                assert resumed < 100_000
            assert endpoint.arrived == data

    @on_both_loops
    async def test_a_paused_connection_is_not_read(self) -> None:
        async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, peer):
            endpoint.pause_reading()
            assert not endpoint.reading
            await asyncio.sleep(0)
            sent = peer.send_until_full()
            assert len(endpoint.arrived) <= LARGE_READ_BYTES  # what was under way when the pause came
            endpoint.resume_reading()
            await eventually(lambda: len(endpoint.arrived) == sent)

    @pytest.mark.parametrize("unread", [b"", b"x" * 1000])
    @pytest.mark.parametrize("paused", [False, True])
    @on_both_loops
    async def test_a_peer_that_closes_ends_the_connection(self, paused: bool, unread: bytes) -> None:
        async with recording_link() as (endpoint, peer):
            if paused:
                endpoint.pause_reading()
            await peer.send(unread)
            peer.close()
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.CLIENT_CLOSED]

    @pytest.mark.parametrize("paused", [False, True])
    @on_both_loops
    async def test_a_reset_ends_the_connection_and_is_named(self, paused: bool) -> None:
        async with recording_link() as (endpoint, peer):
            if paused:
                endpoint.pause_reading()
            peer.reset()
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.CONNECTION_RESET]

    @on_both_loops
    async def test_a_crash_ends_its_own_connection_only(self) -> None:
        async with recording_link() as (broken, its_peer), recording_link() as (whole, peer):
            await its_peer.send(b"crash")
            await eventually(lambda: broken.ends)
            assert broken.ends == [DisconnectCause.INTERNAL_ERROR]
            await peer.send(b"fine")
            await eventually(lambda: whole.arrived == b"fine")
            assert whole.open


class TestClosing:
    @on_both_loops
    async def test_what_was_written_goes_out_first(self) -> None:
        async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, peer):
            endpoint.write(b"x" * MUCH)
            endpoint.close(DisconnectCause.SHUTDOWN)
            assert endpoint.ends == [DisconnectCause.SHUTDOWN]  # permits need not wait for a slow peer
            assert len(await peer.read(MUCH + 1)) == MUCH

    @on_both_loops
    async def test_an_unread_peer_is_cut_after_the_linger(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("proxy.net.transport.LINGER_SECONDS", 0.02)

        async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, _):
            endpoint.write(bytes(MUCH))
            endpoint.close(DisconnectCause.SHUTDOWN)
            await eventually(lambda: endpoint.transport is None, "cut after the linger")
            assert endpoint.ends == [DisconnectCause.SHUTDOWN]

    @on_both_loops
    async def test_abort_forgets_what_is_unsent(self) -> None:
        async with recording_link(kernel_buffer_bytes=BUFFER_BYTES) as (endpoint, peer):
            endpoint.write(bytes(MUCH))
            endpoint.abort(DisconnectCause.WRITE_FAILED)
            await eventually(lambda: endpoint.transport is None)
            assert len(await peer.read(MUCH)) < MUCH


def test_ipv6_peers_are_named_in_brackets() -> None:
    class Six(asyncio.Transport):
        pass

    assert peer_name(Six({"peername": ("::1", 5000, 0, 0)})) == "[::1]:5000"
    assert peer_name(Six()) == "?"
    # A socket of both families writes IPv4 so.
    assert peer_name(Six({"peername": ("::ffff:192.0.2.1", 5000, 0, 0)})) == "192.0.2.1:5000"
