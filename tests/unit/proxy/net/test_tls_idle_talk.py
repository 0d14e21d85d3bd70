"""A peer that keeps TLS busy with itself costs no more than one that does not, and is shown out."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.read_turns import NO_DATA_BYTES, OWN_REPLIES_BYTES, SLOW_READS
from proxy.net.tls.shared import RECORD_BYTES, TlsShared
from proxy.net.tls.transport import TlsTransport
from proxy.net.transport import LARGE_READ_BYTES, SMALL_READ_BYTES
from tests.support.auth.key_updates import HandSealer, logging_context
from tests.support.auth.tls import TlsPeer, tls_link
from tests.support.loops.loops import LoopFactory, both_loops, eventually, run_on
from tests.support.sockets.endpoints import Peer, RecordingEndpoint

UPDATE_BYTES = 27
PIECE = 100


class Ending(RecordingEndpoint):
    """Keep why the connection ended, in words, and how often writing was paused."""

    failure: BaseException | None = None
    pauses = 0

    def connection_lost(self, exc: Exception | None) -> None:
        self.failure = exc
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self.pauses += 1
        super().pause_writing()

    @property
    def detail(self) -> str:
        assert isinstance(self.failure, TlsFailed)
        return self.failure.detail


@asynccontextmanager
async def updating_link(
    directory: Path, kernel_buffer_bytes: int = 0
) -> AsyncIterator[tuple[Ending, TlsPeer, HandSealer]]:
    """Give an endpoint with TLS below it, its peer, and what seals the peer's records."""
    context = logging_context(directory)
    async with tls_link(Ending, kernel_buffer_bytes, context=context) as (endpoint, peer):
        assert isinstance(endpoint, Ending)
        yield endpoint, peer, HandSealer.of(directory, peer.sealer.tls)


def below(endpoint: RecordingEndpoint) -> TlsTransport:
    assert isinstance(endpoint.transport, TlsTransport)
    return endpoint.transport


@both_loops
class TestUpdatesOfKeys:
    def test_data_behind_updates_arrives_and_each_is_answered(self, loop_factory: LoopFactory, tmp_path: Path) -> None:
        async def main() -> None:
            async with updating_link(tmp_path) as (endpoint, peer, hand):
                sent = bytearray()
                for _ in range(10):
                    data = os.urandom(PIECE)
                    sent += data
                    await Peer.send(peer, hand.updates(20) + hand.data(data))
                await eventually(lambda: endpoint.arrived == sent)
                endpoint.write(b"answer")
                assert await peer.read(6) == b"answer"
                # OpenSSL answers one when it meets the next record of its own, or with the next write.
                assert 0 < below(endpoint)._replied_bytes <= 200 * UPDATE_BYTES

        run_on(loop_factory, main())

    def test_what_is_answered_to_a_peer_that_does_not_read_is_bounded(
        self, loop_factory: LoopFactory, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with updating_link(tmp_path, kernel_buffer_bytes=4096) as (endpoint, peer, hand):
                transport = below(endpoint)
                full = bytes(64 * 1024)
                endpoint.write(full)
                assert endpoint.write_pending
                unsent = transport.get_write_buffer_size()
                data = hand.updates(150) + hand.data(b"1")
                # The kernel takes all of it at once.
                await Peer.send(peer, data + hand.updates(500) + hand.data(b"2"))
                await eventually(lambda: transport._replying)
                for _ in range(20):
                    await asyncio.sleep(0)
                assert endpoint.write_pending
                assert transport.get_write_buffer_size() <= unsent + SMALL_READ_BYTES
                assert len(transport._held) <= SMALL_READ_BYTES
                assert await peer.read(len(full)) == full
                # It reads again: all that was left unread is read and answered.
                async with asyncio.TaskGroup() as group:
                    reading = group.create_task(peer.read(1))
                    await eventually(lambda: endpoint.arrived == b"12")
                    endpoint.write(b"!")
                assert reading.result() == b"!"
                assert endpoint.ends == []

        run_on(loop_factory, main())

    def test_an_endpoint_that_stops_reading_meanwhile_stays_stopped(
        self, loop_factory: LoopFactory, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with updating_link(tmp_path) as (endpoint, peer, hand):
                transport = below(endpoint)
                await Peer.send(peer, hand.updates(10))
                await eventually(lambda: transport._replied_bytes)
                endpoint.pause_reading()
                await Peer.send(peer, hand.data(b"late"))
                for _ in range(5):
                    await asyncio.sleep(0)
                assert endpoint.arrived == b""
                assert not transport._replying
                endpoint.resume_reading()
                await eventually(lambda: endpoint.arrived == b"late")

        run_on(loop_factory, main())

    def test_a_peer_that_leaves_with_answers_unsent_is_noticed(self, loop_factory: LoopFactory, tmp_path: Path) -> None:
        async def main() -> None:
            async with updating_link(tmp_path, kernel_buffer_bytes=4096) as (endpoint, peer, hand):
                endpoint.write(bytes(64 * 1024))
                await Peer.send(peer, hand.updates(10))
                await eventually(lambda: below(endpoint)._replying)
                peer.reset()
                await eventually(lambda: endpoint.ends)

        run_on(loop_factory, main())

    def test_a_row_without_data_ends_the_connection_and_is_named(
        self, loop_factory: LoopFactory, tmp_path: Path
    ) -> None:
        async def main() -> None:
            async with updating_link(tmp_path) as (endpoint, peer, hand):
                flood = hand.updates(NO_DATA_BYTES // UPDATE_BYTES + 200, requested=False)
                await Peer.send(peer, flood)
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.TLS_ERROR]
                assert "than its data explain" in endpoint.detail

        run_on(loop_factory, main())

    def test_data_between_does_not_hide_a_flood(self, loop_factory: LoopFactory, tmp_path: Path) -> None:
        async def main() -> None:
            async with updating_link(tmp_path) as (endpoint, peer, hand):
                rounds = OWN_REPLIES_BYTES // (8 * UPDATE_BYTES) + 2
                flood = b"".join(hand.updates(8) + hand.data(b".") for _ in range(rounds))
                # The kernel takes all of it, and all that is answered.
                await Peer.send(peer, flood)
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.TLS_ERROR]
                assert "bytes of answers" in endpoint.detail

        run_on(loop_factory, main())

    @pytest.mark.parametrize("between", [10, 150, 1000])
    def test_a_little_data_between_does_not_hide_a_flood_that_asks_for_no_answer(
        self, loop_factory: LoopFactory, tmp_path: Path, between: int
    ) -> None:
        async def main() -> None:
            async with updating_link(tmp_path) as (endpoint, peer, hand):
                rounds = 2 * NO_DATA_BYTES // (UPDATE_BYTES * between - UPDATE_BYTES * 9) + 1
                flood = b"".join(hand.updates(between, requested=False) + hand.data(b".") for _ in range(rounds))
                await Peer.send(peer, flood)
                await eventually(lambda: endpoint.ends)
                assert endpoint.ends == [DisconnectCause.TLS_ERROR]
                assert "than its data explain" in endpoint.detail

        run_on(loop_factory, main())


class Large(Ending):
    """Read much at a time, as a relay does."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._shared.large


class Clock:
    """A clock whose every look takes `step` seconds."""

    def __init__(self) -> None:
        self.now, self.step = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def tiny(peer: TlsPeer, sealed_bytes: int) -> bytes:
    """Seal one byte a record, until there are so many bytes."""
    sealed = bytearray()
    while len(sealed) < sealed_bytes:
        sealed += peer.sealer.seal(b".")
    return bytes(sealed[:sealed_bytes])


def deliver(transport: TlsTransport, data: bytes) -> None:
    """Bring bytes as a plain transport does."""
    buffer = transport.get_buffer(-1)
    buffer[: len(data)] = data
    transport.buffer_updated(len(data))


@both_loops
class TestTurns:
    @pytest.mark.threat("tls-key-updates")
    def test_an_iteration_reads_little_of_a_flood(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(Ending) as (endpoint, peer):
                endpoint.pause_reading()
                flood = tiny(peer, 200_000)
                await Peer.send(peer, flood)
                endpoint.resume_reading()
                most = seen = 0
                while len(endpoint.arrived) < len(flood) // 30:
                    await asyncio.sleep(0)
                    most, seen = max(most, len(endpoint.arrived) - seen), len(endpoint.arrived)
                # A record of one byte is 23 bytes; the loop may look at its sockets twice between two looks here.
                assert 0 < most <= 3 * SMALL_READ_BYTES // 22
                assert endpoint.ends == []

        run_on(loop_factory, main())

    def test_when_the_iteration_is_used_up_a_read_is_decrypted_in_its_turn(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(Ending) as (endpoint, peer):
                transport = below(endpoint)
                small, costly = peer.sealer.seal(b"PING"), tiny(peer, 2000)
                transport._shared.reads.charge(2 * ITERATION_SECONDS)
                deliver(transport, small)
                deliver(transport, costly)
                assert endpoint.arrived == b"PING"
                await eventually(lambda: len(endpoint.arrived) > 4)
                await Peer.send(peer, peer.sealer.seal(b"last"))
                # Half a record was the end of what came.
                await eventually(lambda: endpoint.ends)

        run_on(loop_factory, main())

    def test_a_peer_of_tiny_records_is_read_little_at_a_time_until_it_is_not(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            clock = Clock()
            shared = TlsShared(LoopBudget(asyncio.get_running_loop(), clock))
            async with tls_link(Large, shared=shared) as (endpoint, peer):
                transport = below(endpoint)
                # OpenSSL holds what is incomplete: a large record in its parts is no reason.
                record = peer.sealer.seal(bytes(16000))
                deliver(transport, record[:9000])
                deliver(transport, record[9000:])
                assert len(transport.get_buffer(-1)) == LARGE_READ_BYTES - RECORD_BYTES
                clock.step = 0.001
                deliver(transport, peer.sealer.seal(bytes(16000)))
                assert len(transport.get_buffer(-1)) == LARGE_READ_BYTES - RECORD_BYTES
                deliver(transport, b"".join(peer.sealer.seal(b".") for _ in range(500)))
                assert len(transport.get_buffer(-1)) == SMALL_READ_BYTES
                clock.step = 0.0
                for number in range(SLOW_READS):
                    assert len(transport.get_buffer(-1)) == SMALL_READ_BYTES, number
                    await eventually(lambda: not transport._resting)
                    deliver(transport, peer.sealer.seal(bytes(2000)))
                assert len(transport.get_buffer(-1)) == LARGE_READ_BYTES - RECORD_BYTES
                assert len(endpoint.arrived) == 2 * 16000 + 500 + SLOW_READS * 2000

        run_on(loop_factory, main())

    def test_a_peer_that_ends_while_it_waits_for_its_turn_is_heard_first(self, loop_factory: LoopFactory) -> None:
        async def main() -> None:
            async with tls_link(Ending) as (endpoint, peer):
                transport = below(endpoint)
                transport._shared.reads.charge(2 * ITERATION_SECONDS)
                deliver(transport, peer.sealer.seal(bytes(2000)))
                transport.eof_received()
                assert endpoint.ends == []
                await eventually(lambda: endpoint.ends)
                assert len(endpoint.arrived) == 2000

        run_on(loop_factory, main())


@both_loops
def test_records_of_one_byte_are_no_idle_talk(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with tls_link(Ending) as (endpoint, peer):
            data = os.urandom(3 * NO_DATA_BYTES // 22)
            await Peer.send(peer, b"".join(peer.sealer.seal(data[at : at + 1]) for at in range(len(data))))
            await eventually(lambda: endpoint.arrived == data)
            assert endpoint.ends == []

    run_on(loop_factory, main())


@both_loops
def test_records_of_the_largest_size_in_small_reads_are_no_idle_talk(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        async with tls_link(Ending) as (endpoint, peer):
            data = os.urandom(64 * RECORD_BYTES)
            await peer.send(data)
            await eventually(lambda: endpoint.arrived == data)
            assert endpoint.ends == []

    run_on(loop_factory, main())
