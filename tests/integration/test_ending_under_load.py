"""SIGTERM while clients flood the proxy: the drain begins and ends in its time, whatever still comes."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from protocol import commands
from tests.integration.test_leaving import embedded
from tests.support.clients.async_client import AsyncClient, eventually, lookup_frame, topics_frame
from tests.support.proxies.proxy_under_test import TOPIC, namespace
from tests.support.proxies.running_proxy import child_proxy

FLOODS = {
    "pings": commands.ping() * 500,
    "lookups": b"".join(lookup_frame(number, TOPIC) for number in range(200)),
    "lists": b"".join(topics_frame(number, namespace(number % 8)) for number in range(100)),
}


async def pour(client: AsyncClient, frames: bytes) -> None:
    """Send until the connection ends, and take no answer."""
    try:
        while True:
            client.flood(frames)
            await asyncio.sleep(0.001)
    except OSError:
        return


@pytest.mark.threat("flood-while-ending")
@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_keeps_no_proxy_from_ending(tmp_path: Path, flood: str) -> None:
    async with embedded() as broker, child_proxy(tmp_path, broker, shutdownDrainMillis=500) as proxy:
        clients = [await proxy.connected() for _ in range(5)]
        async with asyncio.TaskGroup() as floods:
            for client in clients:
                floods.create_task(pour(client, FLOODS[flood]))
            await proxy.get("/healthz")
            os.kill(proxy.child.pid, signal.SIGTERM)
            await eventually(lambda: proxy.said("stopping"), "the drain")
            assert await proxy.exit_code() == 0
        assert proxy.said("stopped")
        assert '"level":"error"' not in proxy.log.read_text()
