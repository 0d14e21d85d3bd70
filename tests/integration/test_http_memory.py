"""Large bodies through the web port of a proxy in a process of its own: what it grows by."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from proxy.core.process_memory import MemoryPaths, peak_resident_bytes, resident_bytes
from tests.support.auth.tls import PemFiles, server_context
from tests.support.clients.async_client import AsyncClient, eventually
from tests.support.patience import in_time
from tests.support.proxies.running_proxy import Running, proxy_and_broker
from tests.support.web.fake_web_broker import fake_web_broker

BODY_BYTES = 50_000_000
PIECE = b"x" * 100_000
MIB = 1024 * 1024


async def both_ways(request: web.BaseRequest) -> web.StreamResponse:
    if request.method == "PUT":
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
        return web.json_response(size)
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(BODY_BYTES // len(PIECE)):
        await response.write(PIECE)
    return response


async def pieces() -> AsyncIterator[bytes]:
    for _ in range(BODY_BYTES // len(PIECE)):
        yield PIECE


def grown(proxy: Running, before: int) -> int:
    paths = MemoryPaths(process=Path(f"/proc/{proxy.child.pid}"))
    return (peak_resident_bytes(paths) or 0) - before


async def test_bodies_of_50_mb_stream_both_ways_in_a_few_windows(tmp_path: Path) -> None:
    async with fake_web_broker(both_ways) as web_broker:
        keys = {"brokerWebServiceURL": web_broker.url, "httpInputMaxReplayBufferSize": 0}
        async with proxy_and_broker(tmp_path, **keys) as (proxy, _), aiohttp.ClientSession() as client:
            url = f"http://127.0.0.1:{proxy.web_port}/admin/v2/clusters"
            async with client.get(f"http://127.0.0.1:{proxy.web_port}/metrics") as answer:
                assert answer.status == 200
            before = resident_bytes(MemoryPaths(process=Path(f"/proc/{proxy.child.pid}"))) or 0
            async with client.put(url, data=pieces()) as answer:
                assert await answer.json() == BODY_BYTES
            async with client.get(url) as answer:
                got = 0
                async for piece in answer.content.iter_any():
                    got += len(piece)
                assert got == BODY_BYTES
            assert grown(proxy, before) < 4 * MIB


def to_broker_with_tls(directory: Path, port: int) -> dict[str, object]:
    urls = {"brokerServiceURLTLS": "pulsar+ssl://localhost:1", "brokerWebServiceURLTLS": f"https://localhost:{port}"}
    return PemFiles.write(directory).broker_keys | urls


@pytest.mark.parametrize("tls", [None, server_context()], ids=["plain", "tls"])
async def test_many_clients_that_do_not_read_hold_their_windows_and_no_more(
    tmp_path: Path, tls: ssl.SSLContext | None
) -> None:
    clients = 100
    async with fake_web_broker(both_ways, tls=tls) as web_broker:
        keys = to_broker_with_tls(tmp_path, web_broker.port) if tls else {"brokerWebServiceURL": web_broker.url}
        async with proxy_and_broker(tmp_path, topicListWriteStallTimeoutMillis=0, **keys) as (proxy, _):
            await proxy.get("/metrics")
            before = resident_bytes(MemoryPaths(process=Path(f"/proc/{proxy.child.pid}"))) or 0
            readers = [await AsyncClient.open(proxy.web_port, rcvbuf=4096) for _ in range(clients)]
            for reader in readers:
                await reader.send(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: p\r\n\r\n")
            await eventually(lambda: len(web_broker.asked) == clients, "every question at the broker")
            async with in_time(30):
                while await still_moving(proxy):
                    pass
            growth = grown(proxy, before)
            for reader in readers:
                reader.close()
    # docs/memory.md: 16 KiB a connection, and a window of 4 x httpOutputBufferSize.
    each = 4 * 32_768 + 48 * 1024 + (160 * 1024 if tls else 0)
    assert growth < clients * each + 4 * MIB, growth // clients


async def still_moving(proxy: Running) -> bool:
    before = await proxy.get("/metrics")
    await asyncio.sleep(0.2)
    after = await proxy.get("/metrics")
    line = b'http_bytes_total{cluster="test",direction="to_client"}'
    return before.partition(line)[2].split(b"\n")[0] != after.partition(line)[2].split(b"\n")[0]
