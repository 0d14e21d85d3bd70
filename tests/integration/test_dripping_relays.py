"""Crowds of relays that drip or stand still in the middle of a frame: others are served, and nothing is left.

The same at full size: `python -m benchmarks.ladder.run hostile-dripping-relays-10 hostile-stopped-relays-10`.
"""

import os
from typing import Any

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from proxy.relay.memory.windows import NARROW_BYTES
from tests.integration.test_direct_mode import greet
from tests.integration.test_kip72 import READ_BYTES, UNSENT_BYTES
from tests.integration.test_socket_memory import NARROW_SUM, weighed
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import MIB, TOPIC, Stage, staged

pytestmark = pytest.mark.usefixtures("tls_mode")
CROWD, ROUNDS = 40, 10
SMALL_RCVBUF = 4096
# The bound of the kernel's memory, which nobody reaches whose windows stay narrow.
SOCKETS_MB = 16
# The size of a frame of 1 MiB, of a command in it, and not a byte more.
ANNOUNCED = MIB.to_bytes(4, "big") + (200).to_bytes(4, "big")


async def relayed(stage: Stage, broker: RawBroker) -> AsyncClient:
    client = await stage.client(SMALL_RCVBUF)
    await client.connect(target=f"127.0.0.1:{broker.port}")
    return client


def pooled(stage: Stage) -> int:
    """Count the bytes that relays hold for their receivers: in the pool's books, or without a pool in their own."""
    pool = stage.proxy.relay_engines.pool
    if pool is not None:
        return pool.used_bytes
    return sum(sum(relay.snapshot().unsent) for relay in stage.proxy.sessions.all_relays())


async def served(neighbour: AsyncClient) -> None:
    await neighbour.ping()
    assert (await neighbour.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.threat("slow-relays-by-hundreds")
@pytest.mark.parametrize("leaving", ["clients", "brokers"])
@pytest.mark.parametrize("pool_mb", [-1, 1], ids=["no pool", "a pool"])
async def test_relays_that_drip_and_stand_still_hold_up_nobody_and_leave_nothing(pool_mb: int, leaving: str) -> None:
    keys: dict[str, Any] = {
        "relayMemoryPoolMB": pool_mb, "relayBufferBytes": READ_BYTES, "relayUnsentBytes": UNSENT_BYTES,
        "relaySocketMemoryMB": SOCKETS_MB,
    }  # fmt: skip
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        neighbour = await stage.connected()
        dripping = [await relayed(stage, broker) for _ in range(CROWD)]
        standing = [await relayed(stage, broker) for _ in range(CROWD)]
        piece, most_pooled = os.urandom(64 * 1024), 0
        for client in dripping:
            await client.send(ANNOUNCED)
        for turn in range(ROUNDS):
            for client in dripping:
                client.send_now(bytes((turn,)))
            for peer in broker.peers[CROWD:]:
                # These brokers send to clients that read nothing.
                peer.send_now(piece)
            await served(neighbour)
            most_pooled = max(most_pooled, pooled(stage))
        # Threads that get no processor read later than this loop has its rounds.
        await stage.until(lambda: pooled(stage) > 0, "bytes for clients that read nothing")
        most_pooled = max(most_pooled, pooled(stage))
        native = stage.proxy.relay_engines.native
        threads = 0 if native is None else len(native.pairs.beats())
        # A read of the loop and of each thread may pass the pool's limit; without a pool each relay has a read.
        assert most_pooled <= (CROWD if pool_mb < 0 else MIB // READ_BYTES + threads + 1) * READ_BYTES
        assert CROWD * NARROW_BYTES < await weighed(stage) <= CROWD * NARROW_SUM <= SOCKETS_MB * MIB
        assert len(list(stage.proxy.sessions.all_relays())) == 2 * CROWD
        for peer in broker.peers[:CROWD]:
            assert await peer.receive(len(ANNOUNCED) + ROUNDS) == ANNOUNCED + bytes(range(ROUNDS))
        for end in (*dripping, *standing) if leaving == "clients" else broker.peers:
            end.reset()
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "the neighbour alone")
        await served(neighbour)
