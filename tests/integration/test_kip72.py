"""KIP-72 at relays: one bound for all bytes that were read and not passed on (K1 to K11)."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from limiter.soft_pool import PoolRecord
from protocol.errors import ServerError
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.core.errors import DisconnectCause
from proxy.relay.engine import PauseReason, Relay
from tests.integration.test_direct_mode import KERNEL_BYTES, Pair, greet, joined, paired
from tests.integration.test_relay_contract import turns
from tests.support.auth.credentials import refused
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.proxies.proxy_under_test import MIB, Stage, staged
from tests.support.proxies.relays import TO_CLIENT, unsent

KIB = 1024
READ_BYTES = 64 * KIB
UNSENT_BYTES = 64 * KIB
THREADS = 1
# What they hold together is more than the pool.
MANY = 40
FLOOD = os.urandom(MIB)


@asynccontextmanager
async def pooled(**keys: Any) -> AsyncIterator[tuple[Stage, RawBroker]]:
    """Run a proxy whose relays share the smallest pool."""
    settings = {
        "relayMemoryPoolMB": 1, "relayBufferBytes": READ_BYTES, "relayUnsentBytes": UNSENT_BYTES,
        "numIOThreads": THREADS,
    } | keys  # fmt: skip
    async with staged(**settings) as stage, raw_broker(greet) as broker:
        yield stage, broker


def pool_of(stage: Stage) -> PoolRecord:
    pool = stage.proxy.relay_engines.pool
    assert pool is not None
    return pool


def is_empty(stage: Stage) -> bool:
    pool = pool_of(stage)
    return pool.used_bytes == 0 and pool.muted == 0


async def pour(pair: Pair, relay: Relay, start: int = 0) -> int:
    """Let the broker send from byte `start` until nothing more is taken for a while; return how much was."""
    taken = still = 0
    while still < 25:
        count = pair.broker.send_now(FLOOD[(start + taken) % MIB :])
        taken += count
        still = 0 if count else still + 1
        assert taken < KERNEL_BYTES
        await asyncio.sleep(0 if count else 0.002)
    return taken


def expected_bytes(start: int, size: int) -> bytes:
    whole = FLOOD * (2 + (start + size) // MIB)
    return whole[start : start + size]


async def stalled(stage: Stage, broker: RawBroker, count: int) -> list[tuple[Pair, Relay, int]]:
    """Join consumers that read nothing, each with as much as it takes on its way."""
    found = []
    for _ in range(count):
        known = set(stage.proxy.sessions.all_relays())
        pair = await joined(stage, broker)
        (relay,) = set(stage.proxy.sessions.all_relays()) - known
        found.append((pair, relay, await pour(pair, relay)))

    # An engine that gets no processor reads later than the pour looks.
    def used_up() -> bool:
        pool = pool_of(stage)
        return pool.used_bytes >= pool.limit_bytes and pool.muted > 0

    await stage.until(used_up, "a pool used up, and waited for")
    return found


async def read_all(pair: Pair, size: int, at_once: int = 64 * KIB) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += await pair.client.receive(min(at_once, size - len(received)))
    return bytes(received)


def shown(stage: Stage) -> dict[str, float]:
    """Give the metrics of the pool, by the ends of their names."""
    lines = ProxyMetrics("c", stage.proxy.counters).render().decode().splitlines()
    prefix = "pulsar_proxy_relay_pool_"
    return {
        line.removeprefix(prefix).split("{")[0]: float(line.split()[-1]) for line in lines if line.startswith(prefix)
    }


def held(stage: Stage) -> int:
    return sum(sum(relay.snapshot().unsent) for relay in stage.proxy.sessions.all_relays())


async def test_k1_off_has_no_pool_and_costs_nothing() -> None:
    async with paired(relayMemoryPoolMB=0) as pair:
        assert pair.stage.proxy.relay_engines.pool is None
        assert shown(pair.stage) == {}


@pytest.mark.usefixtures("tls_mode")
@pytest.mark.tls_modes("plain", "both")
@pytest.mark.threat("unreading-consumers")
async def test_k1_one_pool_bounds_what_all_relays_hold_and_every_byte_arrives() -> None:
    async with pooled() as (stage, broker):
        pairs = await stalled(stage, broker, MANY)
        pool = pool_of(stage)
        assert pool.used_bytes >= pool.limit_bytes
        # K4: one read of each thread, the event loop's included.
        assert pool.used_bytes <= pool.limit_bytes + (THREADS + 1) * READ_BYTES
        assert held(stage) <= pool.limit_bytes + (THREADS + 1) * READ_BYTES
        assert pool.muted > 0
        for pair, _, size in pairs:
            assert await read_all(pair, size) == expected_bytes(0, size)
        # A client may have read bytes before the engine counts them.
        await stage.until(lambda: not any(unsent(relay, TO_CLIENT) for _, relay, _ in pairs), "nothing unsent")
        await stage.until(lambda: is_empty(stage), "all memory back")


async def test_k2_both_bounds_hold_beside_each_other() -> None:
    async with pooled(maxConcurrentInboundConnections=MANY) as (stage, broker):
        pairs = await stalled(stage, broker, MANY)
        pool = pool_of(stage)
        # Places and memory are used up. Who has memory gets no place by that, and who gets a place no memory.
        assert pool.limit_bytes <= pool.used_bytes <= pool.limit_bytes + (THREADS + 1) * READ_BYTES
        assert (await refused(await stage.client())).error == ServerError.ServiceNotReady
        assert len(stage.proxy.sessions) == MANY
        pairs[-1][0].client.reset()
        await stage.until(lambda: len(stage.proxy.sessions) == MANY - 1, "a free place")
        known = set(stage.proxy.sessions.all_relays())
        newcomer = await joined(stage, broker)
        (relay,) = set(stage.proxy.sessions.all_relays()) - known
        await pour(newcomer, relay)
        assert len(stage.proxy.sessions) == MANY
        assert pool_of(stage).used_bytes <= pool.limit_bytes + (THREADS + 1) * READ_BYTES


@pytest.mark.usefixtures("tls_mode")
@pytest.mark.tls_modes("plain", "both")
@pytest.mark.threat("unreading-consumers")
async def test_k5_k7_a_newcomer_that_reads_is_served_while_others_use_the_pool_up() -> None:
    async with pooled() as (stage, broker):
        await stalled(stage, broker, MANY)
        pool = pool_of(stage)
        assert pool.used_bytes >= pool.limit_bytes
        pair = await joined(stage, broker)
        size = 8 * MIB
        _, received = await asyncio.gather(pair.broker.send(expected_bytes(0, size)), read_all(pair, size))
        assert received == expected_bytes(0, size)
        assert pool_of(stage).used_bytes >= pool.limit_bytes


@pytest.mark.threat("unreading-consumers")
@pytest.mark.parametrize("end", ["reset", "abort", "close", "broker"])
async def test_k6_memory_comes_back_when_a_relay_ends_with_bytes_held(end: str) -> None:
    async with pooled() as (stage, broker):
        pairs = await stalled(stage, broker, MANY)
        pool = pool_of(stage)
        assert pool.used_bytes >= pool.limit_bytes
        for pair, relay, _ in pairs:
            if end == "reset":
                pair.client.reset()
            elif end == "broker":
                pair.broker.reset()
                pair.client.reset()
            elif end == "abort":
                relay.abort(DisconnectCause.ADMIN)
            else:
                relay.close(DisconnectCause.ADMIN)
                pair.client.reset()
        await stage.until(lambda: not len(stage.proxy.sessions), "the end of all relays")
        await stage.until(lambda: is_empty(stage), "all memory back")


async def test_k8_another_reason_outlasts_the_wait_for_memory() -> None:
    async with pooled() as (stage, broker):
        pairs = await stalled(stage, broker, MANY)
        waiting = [entry for entry in pairs if entry[1].snapshot().paused[TO_CLIENT] & PauseReason.POOL]
        (pair, relay, size), *_ = waiting
        relay.pause(TO_CLIENT, PauseReason.RATE)
        for other, _, taken in pairs:
            if other is not pair:
                await read_all(other, taken)
        await stage.until(lambda: pool_of(stage).used_bytes == 0, "memory")
        await stage.until(lambda: relay.snapshot().paused[TO_CLIENT] == PauseReason.RATE, "the other reason alone")
        moved = relay.snapshot().moved[TO_CLIENT]
        await turns()
        assert relay.snapshot().moved[TO_CLIENT] == moved
        relay.resume(TO_CLIENT, PauseReason.RATE)
        assert await read_all(pair, size) == expected_bytes(0, size)


def processor_seconds() -> float:
    """Give the processor time of this process, threads included."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_k10_a_wait_for_memory_burns_no_processor() -> None:
    async with pooled() as (stage, broker):
        await stalled(stage, broker, MANY)
        before, began = processor_seconds(), perf_counter()
        await asyncio.sleep(1)
        # Half a core would be a loop without an end; the test's own clocks take some.
        assert processor_seconds() - before < 0.5 * (perf_counter() - began)


async def test_k11_metrics_say_what_is_used_and_how_long_it_was_used_up() -> None:
    async with pooled() as (stage, broker):
        pairs = await stalled(stage, broker, MANY)
        # Live clocks: a shortage that lasts shows while it lasts.
        before = pool_of(stage)
        await stage.until(lambda: pool_of(stage).muted_millis > before.muted_millis, "a clock that runs")
        await stage.until(lambda: pool_of(stage).depleted_millis > before.depleted_millis, "another that runs")
        pages: list[dict[str, float]] = []

        def undisturbed() -> bool:
            # A thread that empties a stuck pipe has memory for one that waits, also while a page is made.
            muted = pool_of(stage).muted
            pages.append(shown(stage))
            return pool_of(stage).muted == muted

        await stage.until(undisturbed, "a page while which nobody's turn comes")
        page = pages[-1]
        pool = pool_of(stage)
        assert page["limit_bytes"] == pool.limit_bytes <= page["used_bytes"]
        assert page["muted_connections"] == pool.muted > 0
        assert page["muted_seconds_total"] * 1000 > before.muted_millis
        assert page["depleted_seconds_total"] * 1000 > before.depleted_millis
        assert "overshoots_total" in page
        for pair, _, size in pairs:
            await read_all(pair, size)
        await stage.until(lambda: is_empty(stage), "memory, and nobody who waits")
        before = pool_of(stage)
        await asyncio.sleep(0.01)
        assert pool_of(stage) == before
