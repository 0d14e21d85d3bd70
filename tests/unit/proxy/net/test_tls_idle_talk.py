"""A peer that keeps TLS busy with itself costs no more than one that does not, and is shown out."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.loop_budget import LoopBudget
from proxy.net.tls.shared import TlsShared
from proxy.net.transport import SMALL_READ_BYTES
from tests.support.auth.key_updates import HandSealer, logging_context
from tests.support.auth.tls import TlsPeer, tls_link
from tests.support.loops.async_tests import on_both_loops
from tests.support.loops.loops import eventually
from tests.support.sockets.endpoints import Peer, RecordingEndpoint

UPDATE_BYTES = 27
# What a session bears (native/src/tls.rs).
NO_DATA_BYTES = 16 * 1024 + 5 + 256 + 16 * 1024
PIECE = 100
PADDING = 4096


class Ending(RecordingEndpoint):
    """Keep how often writing was paused."""

    pauses = 0

    def pause_writing(self) -> None:
        self.pauses += 1
        super().pause_writing()


@asynccontextmanager
async def updating_link(
    directory: Path, kernel_buffer_bytes: int = 0
) -> AsyncIterator[tuple[Ending, TlsPeer, HandSealer]]:
    """Give an endpoint with TLS below it, its peer, and what seals the peer's records."""
    context = logging_context(directory)
    async with tls_link(Ending, kernel_buffer_bytes, context=context) as (endpoint, peer):
        assert isinstance(endpoint, Ending)
        yield endpoint, peer, HandSealer.of(directory, peer.sealer.tls)


class TestUpdatesOfKeys:
    @on_both_loops
    async def test_data_behind_updates_arrives_and_each_is_answered(self, tmp_path: Path) -> None:
        async with updating_link(tmp_path) as (endpoint, peer, hand):
            sent = bytearray()
            for _ in range(10):
                data = os.urandom(PIECE)
                sent += data
                await Peer.send(peer, hand.updates(20) + hand.data(data))
            await eventually(lambda: endpoint.arrived == sent)
            endpoint.write(b"answer")
            assert await peer.read(6) == b"answer"

    @on_both_loops
    async def test_what_is_answered_to_a_peer_that_does_not_read_is_bounded(self, tmp_path: Path) -> None:
        async with updating_link(tmp_path, kernel_buffer_bytes=4096) as (endpoint, peer, hand):
            full = bytes(64 * 1024)
            endpoint.write(full)
            transport = endpoint.transport
            assert transport is not None
            assert endpoint.write_pending
            unsent = transport.get_write_buffer_size()
            # The kernel takes all of it at once.
            await Peer.send(peer, b"".join(hand.updates(30) + hand.data(b"1") for _ in range(20)))
            for _ in range(200):
                await asyncio.sleep(0)
            assert endpoint.write_pending
            assert transport.get_write_buffer_size() <= unsent + SMALL_READ_BYTES
            assert await peer.read(len(full)) == full
            # It reads again: all that was left unread is read and answered.
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(peer.read(1))
                await eventually(lambda: endpoint.arrived == b"1" * 20)
                endpoint.write(b"!")
            assert reading.result() == b"!"
            assert endpoint.ends == []

    @pytest.mark.parametrize(
        ("between", "told"), [(10, "than its data explain"), (30, "than its data explain"), (150, "in a row")]
    )
    @on_both_loops
    async def test_a_little_data_between_does_not_hide_a_flood_that_asks_for_no_answer(
        self, tmp_path: Path, between: int, told: str
    ) -> None:
        async with updating_link(tmp_path) as (endpoint, peer, hand):
            rounds = 2 * NO_DATA_BYTES // (UPDATE_BYTES * between - UPDATE_BYTES * 9) + 1
            flood = b"".join(hand.updates(between, requested=False) + hand.data(b".") for _ in range(rounds))
            await Peer.send(peer, flood)
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.TLS_ERROR]
            assert told in endpoint.detail


class TestPadding:
    @on_both_loops
    async def test_a_peer_that_hides_the_length_of_its_messages_is_no_idle_talk(self, tmp_path: Path) -> None:
        async with updating_link(tmp_path) as (endpoint, peer, hand):
            data = os.urandom(4 * NO_DATA_BYTES // PADDING)
            await Peer.send(peer, b"".join(hand.data(data[at : at + 1], PADDING) for at in range(len(data))))
            await eventually(lambda: endpoint.arrived == data)
            assert endpoint.ends == []

    @on_both_loops
    async def test_records_of_padding_alone_are_not_paid_for_by_data_between(self, tmp_path: Path) -> None:
        async with updating_link(tmp_path) as (endpoint, peer, hand):
            rounds = 2 * NO_DATA_BYTES // PADDING
            await Peer.send(peer, b"".join(hand.data(b"", PADDING) + hand.data(b".", PADDING) for _ in range(rounds)))
            await eventually(lambda: endpoint.ends)
            assert endpoint.ends == [DisconnectCause.TLS_ERROR]
            assert "than its data explain" in endpoint.detail


def tiny(peer: TlsPeer, sealed_bytes: int) -> bytes:
    """Seal one byte a record, until there are so many bytes."""
    sealed = bytearray()
    while len(sealed) < sealed_bytes:
        sealed += peer.sealer.seal(b".")
    return bytes(sealed[:sealed_bytes])


class TestTurns:
    @pytest.mark.threat("tls-key-updates")
    @on_both_loops
    async def test_an_iteration_reads_little_of_a_flood(self) -> None:
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


@on_both_loops
async def test_records_of_one_byte_are_no_idle_talk() -> None:
    async with tls_link(Ending) as (endpoint, peer):
        data = os.urandom(3 * NO_DATA_BYTES // 22)
        await Peer.send(peer, b"".join(peer.sealer.seal(data[at : at + 1]) for at in range(len(data))))
        await eventually(lambda: endpoint.arrived == data)
        assert endpoint.ends == []


@on_both_loops
async def test_a_peer_that_ends_while_its_data_waits_for_a_turn_is_heard_first() -> None:
    # Each look at the clock takes a second: no iteration has time for a second read.
    clock = itertools.count(0.0)
    shared = TlsShared(LoopBudget(asyncio.get_running_loop(), lambda: next(clock)))
    async with tls_link(Ending, shared=shared) as (endpoint, peer):
        await Peer.send(peer, tiny(peer, 40_000))
        peer.half_close()
        await eventually(lambda: endpoint.ends)
        assert len(endpoint.arrived) == 40_000 // 23
