"""The kernel memory of relayed sockets: windows that are narrow until bytes were taken, and the bound in sum."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from proxy.core.errors import DisconnectCause
from proxy.relay.memory.windows import NARROW_BYTES
from proxy.relay.socket_bound import SocketBound
from tests.integration.test_direct_mode import SMALL_RCVBUF, Pair, greet, joined
from tests.integration.test_kip72 import FLOOD, READ_BYTES, UNSENT_BYTES, expected_bytes, pour, read_all
from tests.integration.test_strangers import STRANGER
from tests.support.brokers.raw_broker import RawBroker, raw_broker
from tests.support.clients.async_client import LOOPBACK
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, staged

# What a client has to take until its relay has a wide window (`native/src/relay/windows.rs`).
PROVEN_BYTES = 1024 * 1024
KEYS: dict[str, Any] = {"relayBufferBytes": READ_BYTES, "relayUnsentBytes": UNSENT_BYTES, "tcpUserTimeoutMillis": 0}
# What a consumer's own kernel takes before the proxy holds anything, and the sum of what is held for it after that:
# a narrow window, a read, and unsent bytes with their bookkeeping.
NARROW_SUM = 2 * NARROW_BYTES + READ_BYTES + 3 * UNSENT_BYTES


def bound_of(stage: Stage) -> SocketBound:
    bound = stage.proxy.relay_engines.bound
    assert bound is not None
    return bound


async def weighed(stage: Stage) -> int:
    """Let two looks at all sockets pass, of the threads, too; return the sum."""
    engines, now = stage.proxy.relay_engines, stage.proxy.loop.time
    if engines.native is not None:
        looked = now() + 2
        await stage.until(lambda: now() > looked, "two looks of the threads")
    for _ in range(2):
        before = engines.weighed
        await stage.until(lambda seen=before: engines.weighed is not seen, "another look")  # type: ignore[misc]
    return sum(engines.weighed)


async def stalled(stage: Stage, broker: Any, count: int) -> list[Pair]:
    pairs = []
    for _ in range(count):
        known = set(stage.proxy.sessions.all_relays())
        pairs.append(await joined(stage, broker))
        (relay,) = set(stage.proxy.sessions.all_relays()) - known
        # The bound may end the relay meanwhile.
        with suppress(ConnectionError):
            await pour(pairs[-1], relay)
    return pairs


async def test_a_consumer_that_never_reads_holds_a_narrow_window() -> None:
    async with staged(**KEYS) as stage, raw_broker(greet) as broker:
        await stalled(stage, broker, 8)
        assert 8 * NARROW_BYTES < await weighed(stage) <= 8 * NARROW_SUM


async def test_the_window_is_wide_once_the_consumer_has_taken_bytes_and_no_byte_is_lost() -> None:
    async with staged(**KEYS) as stage, raw_broker(greet) as broker:
        pair = await joined(stage, broker)
        (relay,) = stage.proxy.sessions.all_relays()
        size = await pour(pair, relay)
        narrow = await weighed(stage)
        assert await read_all(pair, size) == expected_bytes(0, size)
        # More than proves that the client reads: whole turns are read before anybody looks.
        for _ in range(4 * PROVEN_BYTES // READ_BYTES):
            await pair.broker.send(FLOOD[:READ_BYTES])
            assert await read_all(pair, READ_BYTES) == FLOOD[:READ_BYTES]
        await weighed(stage)
        more = await pour(pair, relay)
        # The kernel tunes the window of the broker's socket again.
        assert await weighed(stage) > narrow + 2 * NARROW_BYTES
        assert len(await read_all(pair, more)) == more


async def test_relays_that_stand_still_are_ended_at_the_bound_and_one_that_reads_is_not() -> None:
    async with staged(**KEYS, relaySocketMemoryMB=2) as stage, raw_broker(greet) as broker:
        reader = await joined(stage, broker)
        pairs = await stalled(stage, broker, 16)
        bound = bound_of(stage)
        await stage.until(lambda: bound.ended > 0, "relays ended")
        await stage.until(lambda: sum(stage.proxy.relay_engines.weighed) < bound.limit_bytes, "below the bound")
        # The last have been weighed, and no more end than have to.
        before = -1
        while bound.ended != before:
            before = bound.ended
            await weighed(stage)
        assert bound.tight
        # A thread tells of an end later than the bound asks for it.
        await stage.until(lambda: stage.caused(DisconnectCause.MEMORY_LIMIT) == bound.ended, "all ends told")
        ended = counted(stage.proxy.counters, "disconnects", DisconnectCause.MEMORY_LIMIT)
        assert ended == bound.ended < len(pairs)
        _, received = await asyncio.gather(reader.broker.send(FLOOD), read_all(reader, len(FLOOD)))
        assert received == FLOOD


@pytest.mark.threat("standing-relays-kernel-memory")
@pytest.mark.parametrize("host", [STRANGER, LOOPBACK], ids=["to a stranger", "to a known broker"])
async def test_many_relays_of_one_address_with_little_each_end_before_a_large_one_of_another(host: str) -> None:
    async with staged(**KEYS) as stage, raw_broker(greet) as broker, raw_broker(greet, host=host) as theirs:
        consumer = await joined(stage, broker)
        (relay,) = stage.proxy.sessions.all_relays()
        for _ in range(4 * PROVEN_BYTES // READ_BYTES):
            await consumer.broker.send(FLOOD[:READ_BYTES])
            assert await read_all(consumer, READ_BYTES) == FLOOD[:READ_BYTES]
        await weighed(stage)
        # Its window is wide, so the relay that stands still holds more than any other.
        size = await pour(consumer, relay)
        while (largest := await weighed(stage)) <= 2 * NARROW_SUM:
            # A busy kernel opens the window late.
            size += await pour(consumer, relay, size)
        bound, crowd = bound_of(stage), 16
        for _ in range(crowd):
            await _standing(stage, theirs, f"{host}:{theirs.port}")
        # Who was filled in the second of a look has moved then.
        for _ in range(2):
            total = await weighed(stage)
        assert total > 2 * largest
        # Less than there is, whatever peers acknowledge meanwhile.
        bound.limit_bytes = total * 19 // 20
        await weighed(stage)
        await stage.until(lambda: sum(stage.proxy.relay_engines.weighed) < total, "below the bound")
        assert 0 < bound.ended < crowd // 2
        assert relay in set(stage.proxy.sessions.all_relays())
        assert await read_all(consumer, size) == expected_bytes(0, size)


async def _standing(stage: Stage, broker: RawBroker, target: str) -> Pair:
    """Join a client of another address that reads nothing, and let its broker send."""
    known = set(stage.proxy.sessions.all_relays())
    client = await stage.client(SMALL_RCVBUF, source="127.0.0.3")
    await client.connect(target=target)
    pair = Pair(stage, client, broker.peers[-1])
    for relay in set(stage.proxy.sessions.all_relays()) - known:
        with suppress(ConnectionError):
            await pour(pair, relay)
    return pair
