"""Crowds of relays that drip or stand still in the middle of a frame: others are served, and nothing is left.

The same at full size: `python -m benchmarks.ladder.run hostile-dripping-relays-10 hostile-stopped-relays-10`.
"""

import asyncio
import os
from typing import Any

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.raw_broker import RawBroker, handshake, raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import MIB, TOPIC, Stage, staged

CROWD, ROUNDS = 40, 10
SMALL_RCVBUF = 4096
# The size of a frame of 1 MiB, of a command in it, and not a byte more.
ANNOUNCED = MIB.to_bytes(4, "big") + (200).to_bytes(4, "big")

pytestmark = pytest.mark.usefixtures("relay_engine")


async def greet(peer: AsyncClient) -> None:
    await handshake(peer)
    await asyncio.Event().wait()


async def relayed(stage: Stage, broker: RawBroker) -> AsyncClient:
    client = await stage.client(SMALL_RCVBUF)
    await client.connect(target=f"127.0.0.1:{broker.port}")
    return client


async def served(neighbour: AsyncClient) -> None:
    await neighbour.ping()
    assert (await neighbour.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.parametrize("leaving", ["clients", "brokers"])
@pytest.mark.parametrize("pool_mb", [-1, 1], ids=["no pool", "a pool"])
async def test_relays_that_drip_and_stand_still_hold_up_nobody_and_leave_nothing(pool_mb: int, leaving: str) -> None:
    keys: dict[str, Any] = {"relayMemoryPoolMB": pool_mb, "relayBufferBytes": 65536}
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        neighbour = await stage.connected()
        dripping = [await relayed(stage, broker) for _ in range(CROWD)]
        standing = [await relayed(stage, broker) for _ in range(CROWD)]
        piece = os.urandom(64 * 1024)
        for client in dripping:
            await client.send(ANNOUNCED)
        for turn in range(ROUNDS):
            for client in dripping:
                client.send_now(bytes((turn,)))
            for peer in broker.peers[CROWD:]:
                # These brokers send to clients that read nothing.
                peer.send_now(piece)
            await served(neighbour)
        assert len(list(stage.proxy.sessions.all_relays())) == 2 * CROWD
        for peer in broker.peers[:CROWD]:
            assert await peer.receive(len(ANNOUNCED) + ROUNDS) == ANNOUNCED + bytes(range(ROUNDS))
        for end in (*dripping, *standing) if leaving == "clients" else broker.peers:
            end.reset()
        await stage.until(lambda: len(stage.proxy.sessions) == 1, "the neighbour alone")
        await served(neighbour)
