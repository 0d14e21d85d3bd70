"""The relay pool with every kind of relay: clients with TLS, frames for watchers, taps of `proxyLogLevel`.

With TLS the event loop relays; while the native engine runs, the books of its threads are charged then.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.demo.session import message_frame
from proxy.relay.memory.pool import RelayPool
from tests.integration.test_direct_mode import KERNEL_BYTES, Pair, greet, joined
from tests.integration.test_kip72 import (
    KIB,
    MANY,
    READ_BYTES,
    THREADS,
    UNSENT_BYTES,
    held,
    pool_of,
    processor_seconds,
    read_all,
)
from tests.integration.test_watch_limits import LIST, exhaust
from tests.support.auth.tls import serve_with_tls
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.relays import waits_for_memory

pytestmark = pytest.mark.usefixtures("relay_engine")

# Frames, which taps and scanners read: large, so that a tap has few lines to write.
FRAMES = message_frame(60_000) * 16
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"watchTopicListLimitEnabled": "false"},
    "tls": {},
    "tap": {"proxyLogLevel": 2},
    "watched": {},
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have relays of one kind."""
    name: str = request.param
    if name == "tls":
        serve_with_tls(tmp_path, monkeypatch)
    return name


@asynccontextmanager
async def pooled(kind: str, **keys: Any) -> AsyncIterator[tuple[Stage, RawBroker]]:
    settings = {
        "relayMemoryPoolMB": 1, "relayBufferBytes": READ_BYTES, "relayUnsentBytes": UNSENT_BYTES,
        "numIOThreads": THREADS, "relayReceiveBufferBytes": 128 * KIB,
    } | KINDS[kind] | keys  # fmt: skip
    async with staged(**settings) as stage, raw_broker(greet) as broker:
        yield stage, broker


async def stalled(stage: Stage, broker: RawBroker, count: int) -> list[tuple[Pair, int]]:
    """Join consumers that read nothing, and let their brokers send at once until no byte is taken."""
    pairs = [await joined(stage, broker) for _ in range(count)]
    for pair in pairs:
        # What lies in a broker's own kernel says nothing about the proxy, and takes long to read.
        pair.broker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, READ_BYTES)
    return list(zip(pairs, await asyncio.gather(*(_pour(pair.broker) for pair in pairs)), strict=True))


async def _pour(sender: AsyncClient, at_once: int = len(FRAMES)) -> int:
    taken = still = 0
    while still < 25:
        begin = taken % len(FRAMES)
        count = sender.send_now(FRAMES[begin : begin + at_once])
        taken += count
        still = 0 if count else still + 1
        assert taken < KERNEL_BYTES
        await asyncio.sleep(0 if count else 0.005)
    return taken


def expected(size: int) -> bytes:
    return (FRAMES * (1 + size // len(FRAMES)))[:size]


def most(pool: RelayPool) -> int:
    return pool.limit_bytes + (THREADS + 1) * READ_BYTES


async def test_a_pool_bounds_every_kind_of_relay_and_has_all_memory_back_in_the_end(kind: str) -> None:
    async with pooled(kind) as (stage, broker):
        consumers = await stalled(stage, broker, MANY)
        pool = pool_of(stage)
        # Relays on the event loop have their turns. Who holds a single byte does not wait: muted may be none. How much
        # threads hold of watched relays hangs on what the kernel took before they read.
        is_native = any(type(relay).__name__ == "NativeRelay" for relay in stage.proxy.sessions.all_relays())
        least = 1 if is_native and kind == "watched" else pool.limit_bytes
        await stage.until(lambda: pool.used_bytes >= least, "a pool that is used up")
        assert pool.used_bytes <= most(pool)
        # TLS counts what was read, before it is sealed: a few bytes for each record more.
        assert 0 < held(stage) <= most(pool) * 1.01
        # One that reads is served meanwhile.
        reader = await joined(stage, broker)
        _, received = await asyncio.gather(reader.broker.send(FRAMES), read_all(reader, len(FRAMES)))
        assert received == FRAMES
        # Some end with bytes held, on either side.
        for pair, _ in consumers[:10]:
            pair.client.reset()
        for pair, _ in consumers[10:20]:
            pair.broker.reset()
            pair.client.reset()
        for pair, size in consumers[20:]:
            assert await read_all(pair, size) == expected(size)
        await stage.until(lambda: (pool.used_bytes, pool.muted) == (0, 0), "all memory back")


async def test_k10_what_clients_have_sent_waits_for_memory_without_a_loop_and_leaves_in_the_end(kind: str) -> None:
    async with pooled(kind) as (stage, broker):
        pairs = [await joined(stage, broker) for _ in range(MANY)]
        pool = pool_of(stage)
        sent = await asyncio.gather(*(_pour(pair.client, 16 * KIB) for pair in pairs))
        # Whether the pool is used up hangs on the leftovers of last reads: a direction that holds one byte reads none.
        assert 0 < pool.used_bytes <= most(pool)
        before = processor_seconds()
        await asyncio.sleep(1)
        # As in test_kip72.py. With TLS what was decrypted may wait in user space, where it is readable all the time.
        assert processor_seconds() - before < 0.5
        for pair in pairs[:20]:
            pair.client.reset()
            pair.broker.reset()
        for pair, size in list(zip(pairs, sent, strict=True))[20:]:
            assert await pair.broker.receive(size) == expected(size)
        await stage.until(lambda: (pool.used_bytes, pool.muted) == (0, 0), "all memory back")


async def test_a_frame_for_a_watcher_that_waits_is_charged_until_it_has_passed() -> None:
    async with pooled("watched", watchTopicListMaxPauseMillis=600_000) as (stage, broker):
        pair = await joined(stage, broker)
        (relay,) = stage.proxy.sessions.all_relays()
        pool, permit = pool_of(stage), exhaust(stage)
        sent = pair.broker.send_now(LIST)
        await stage.until(lambda: waits_for_memory(relay), "a frame that waits")
        await stage.until(lambda: pool.used_bytes > 0, "a charge for it")
        assert pool.used_bytes <= READ_BYTES
        permit.release()
        _, received = await asyncio.gather(pair.broker.send(LIST[sent:]), read_all(pair, len(LIST)))
        assert received == LIST
        await stage.until(lambda: pool.used_bytes == 0, "all memory back")
