"""Resident memory of the proxy with TLS, against the promise of docs/memory.md and its figure per TLS connection."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.app.memory.budget import TLS_CLIENT_BYTES
from tests.integration.test_memory_budgets import (
    LIMIT_KEY,
    Weighed,
    limits,
    many_files,
    report,
    weighed,
)
from tests.support.auth.tls import PIECE_BYTES, PemFiles, TlsClient, client_context
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import namespace

__all__ = ["LIMIT_KEY", "many_files"]

TOPICS, LIST_BYTES = 10_000, 1_020_000
# Small enough to be full at once, large enough for a thousand readers in one test.
RCVBUF = 16 * 1024
# A test that waits for its turn on a busy machine is no slow reader.
PATIENT = {"topicListWriteStallTimeoutMillis": 0, "topicListWriteMinBytesPerSecond": 0}


async def connected(proxy: Weighed, context: ssl.SSLContext, rcvbuf: int | None = None) -> TlsClient:
    plain = await AsyncClient.open(proxy.port, rcvbuf)
    client = TlsClient(plain.sock, context)
    proxy.clients.append(client)
    await (await client.shake()).connect()
    return client


async def read_list(client: TlsClient) -> None:
    """Read until a whole list has passed, and keep nothing of it."""
    async with in_time(60):
        while (size := int.from_bytes(await client.receive(4), "big")) < LIST_BYTES:
            # A PING.
            await client.receive(size)
        while size:
            size -= len(await client.some(min(size, PIECE_BYTES)))


async def read_lists(clients: list[TlsClient]) -> None:
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(read_list(client))


async def test_500_equal_answers_of_a_megabyte_to_late_readers(tmp_path: Path) -> None:
    connections, heap, direct = 500, 8, 8
    keys = (
        PemFiles.write(tmp_path).server_keys | {"clientSocketSendBufferBytes": 16_384} | PATIENT | limits(heap, direct)
    )
    # Clients that have not read yet may hold all of direct memory: the most that there can be.
    keys |= {"topicListUnprovenReadersMemoryPercent": 100}
    async with weighed(tmp_path, GeneratedTopics(20, TOPICS, 100), **keys) as proxy:
        context = client_context()
        clients = [await connected(proxy, context, RCVBUF) for _ in range(connections)]
        for client in clients:
            await client.ask_topics(namespace(0))
        await proxy.until(lambda at: at("lists_joined_total") > connections / 2, "requests that share an answer")
        await proxy.until(lambda at: at("client_writers") == connections, "everybody being written to")
        await proxy.quiet("topic_list_direct_memory_used_bytes", "client_writers_kernel_bytes")
        await read_lists(clients)
        allowed = proxy.allowed(heap, direct, connections, 1_100_000) + TLS_CLIENT_BYTES * connections
        report("equal lists over TLS", proxy, allowed)
        assert proxy.growth_bytes <= allowed


async def test_a_thousand_idle_connections_cost_no_more_than_they_may(tmp_path: Path) -> None:
    async with weighed(tmp_path, **PemFiles.write(tmp_path).server_keys) as proxy:
        context = client_context()
        for _ in range(1_000):
            await connected(proxy, context)
        allowed = proxy.allowed(0, 0, 1_000) + 4 * 1024 * 1_000
        report("idle connections over TLS", proxy, allowed)
        assert proxy.growth_bytes <= allowed


@pytest.mark.threat("handshake-memory-left")
async def test_half_done_handshakes_hold_little_and_leave_nothing_that_adds_up(tmp_path: Path) -> None:
    keys = PemFiles.write(tmp_path).server_keys | {"maxConcurrentTlsHandshakes": 1_000}
    async with weighed(tmp_path, **keys, handshakeTimeoutMillis=3_600_000) as proxy:
        for _ in range(3):
            await half_done(proxy, 1_000)
            assert proxy.growth_bytes <= 12 * 1024 * 1_000
            for each in proxy.clients:
                each.close()
            await proxy.until(lambda at: at("tls_handshakes_in_flight") == 0, "the end of them")


async def half_done(proxy: Weighed, number: int) -> None:
    for _ in range(number):
        client = TlsClient((await proxy.client()).sock, client_context())
        with suppress(ssl.SSLWantReadError):
            client.sealer.tls.do_handshake()
        await AsyncClient.send(client, client.sealer.outgoing.read())
    await proxy.until(lambda at: at("tls_handshakes_in_flight") == number, "handshakes that are half done")
