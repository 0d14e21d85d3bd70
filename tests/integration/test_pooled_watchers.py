"""The relay pool and frames for watchers: what waits for a permit is charged, and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.test_direct_mode import greet, joined
from tests.integration.test_kip72 import KIB, READ_BYTES, THREADS, UNSENT_BYTES, pool_of, read_all
from tests.integration.test_watch_limits import LIST, exhaust
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.relays import waits_for_memory

pytestmark = pytest.mark.usefixtures("relay_engine")


@asynccontextmanager
async def pooled(**keys: Any) -> AsyncIterator[tuple[Stage, RawBroker]]:
    settings = {
        "relayMemoryPoolMB": 1, "relayBufferBytes": READ_BYTES, "relayUnsentBytes": UNSENT_BYTES,
        "numIOThreads": THREADS, "relayReceiveBufferBytes": 128 * KIB,
    } | keys  # fmt: skip
    async with staged(**settings) as stage, raw_broker(greet) as broker:
        yield stage, broker


async def test_a_frame_for_a_watcher_that_waits_is_charged_until_it_has_passed() -> None:
    async with pooled(watchTopicListMaxPauseMillis=600_000) as (stage, broker):
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


async def test_memory_of_a_frame_that_waits_comes_back_when_its_watcher_leaves() -> None:
    async with pooled(watchTopicListMaxPauseMillis=600_000) as (stage, broker):
        pair = await joined(stage, broker)
        (relay,) = stage.proxy.sessions.all_relays()
        pool, permit = pool_of(stage), exhaust(stage)
        pair.broker.send_now(LIST)
        await stage.until(lambda: waits_for_memory(relay) and pool.used_bytes > 0, "a frame that waits")
        pair.client.reset()
        await stage.until(lambda: pool.used_bytes == 0, "all memory back")
        permit.release()
