"""What relays promise of clients that are counted: slots, limits, drips, and every byte unchanged."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.relay.engine import PauseReason, relay_delay
from proxy.relay.topic_slots import SlotSample, TopicSlots
from tests.integration.test_direct_mode import Pair, greet, joined
from tests.integration.test_relay_contract import told
from tests.support.brokers.raw_broker import raw_broker
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.proxies.relays import TO_BROKER
from tests.support.sockets.frames import pieces_of
from tests.support.sockets.producer_frames import (
    close_frame,
    producer_frame,
    send_frame,
    subscribe_frame,
)

pytestmark = pytest.mark.usefixtures("tls_mode")
TOPIC = "persistent://public/default/t"
OPENED = producer_frame(TOPIC.encode(), 1)
SMALL = send_frame(1, payload=bytes(10))


def slots_of(stage: Stage) -> TopicSlots:
    slots = stage.proxy.relay_engines.slots
    assert slots is not None
    return slots


@asynccontextmanager
async def counted(**keys: Any) -> AsyncIterator[Pair]:
    """Join a client whose messages are counted; at the end no slot has a producer."""
    async with staged(**keys) as stage, raw_broker(greet) as broker:
        slots_of(stage).enabled = True
        # No test waits until a pause is too long, unless it says so.
        slots_of(stage).books.set_max_pause_millis(600_000)
        pair = await joined(stage, broker)
        yield pair
        for found in slots_of(stage).walk():
            slots_of(stage).set_rate(found.slot, None, None)
        for relay in stage.proxy.sessions.all_relays():
            for reason in (PauseReason.POOL, PauseReason.THRESHOLD):
                relay.resume(TO_BROKER, reason)
        pair.client.close()
        pair.broker.close()
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        await stage.until(lambda: not any(sample.relays for sample in slots_of(stage).walk()), "no producer")


async def send_all(pair: Pair, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        await pair.client.send(piece)


async def passed(pair: Pair, data: bytes) -> None:
    """Send what has to come out unchanged."""
    _, received = await asyncio.gather(pair.client.send(data), pair.broker.receive(len(data)))
    assert received == data


def sample(pair: Pair, topic: str = TOPIC) -> SlotSample:
    (found,) = [sample for sample in slots_of(pair.stage).walk() if sample.topic == topic]
    return found


def reasons(pair: Pair) -> PauseReason:
    return pair.relay.snapshot().paused[TO_BROKER]


async def drain(pair: Pair) -> None:
    """Give the topic a limit, and use up its first tokens."""
    slots_of(pair.stage).set_rate(sample(pair).slot, 1.0, None)
    await passed(pair, send_frame(1, payload=bytes(60_000)))
    await passed(pair, send_frame(1, payload=bytes(6_000)))
    await pair.stage.until(lambda: reasons(pair) == PauseReason.RATE, "a pause for want of tokens")


# --- slots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (OPENED + send_frame(1, messages=10) + SMALL, {"": (0, 0), TOPIC: (11, 1)}),
        (OPENED + SMALL + close_frame(1) + SMALL, {"": (1, 0), TOPIC: (1, 0)}),
        # The broker may close a producer: only the client's next PRODUCER tells of that.
        (OPENED + producer_frame(b"other", 1) + SMALL + OPENED + SMALL, {"": (0, 0), "other": (1, 0), TOPIC: (1, 1)}),
        (send_frame(7) + OPENED + SMALL + send_frame(1 << 60) + close_frame(9), {"": (2, 0), TOPIC: (1, 1)}),
        *((producer_frame(name, 1) + SMALL, {"": (1, 0)}) for name in (b"", b"\xff\xfe", b"t" * 600, b"t" * 65_536)),
    ],
)
async def test_messages_count_for_the_topic_of_their_producer_or_with_the_rest(
    stream: bytes, expected: dict[str, tuple[int, int]]
) -> None:
    async with counted() as pair:
        await passed(pair, stream + subscribe_frame(b"t"))
        assert {one.topic: (one.messages, one.relays) for one in slots_of(pair.stage).walk()} == expected
        assert pair.relay.produces
        assert pair.relay.consumes


async def test_what_came_with_the_handshake_is_counted() -> None:
    async with staged() as stage, raw_broker(greet) as broker:
        slots_of(stage).enabled = True
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{broker.port}") + OPENED + SMALL)
        await client.command()
        assert await broker.peers[0].receive(len(OPENED + SMALL)) == OPENED + SMALL
        assert sample(Pair(stage, client, broker.peers[0]))[3:] == (1, False, 1)


async def test_a_producer_that_was_closed_and_one_whose_id_is_reused() -> None:
    async with counted() as pair:
        await passed(pair, OPENED + SMALL + close_frame(1) + SMALL)
        assert sample(pair)[3:] == (1, False, 0)
        await passed(pair, OPENED + producer_frame(b"other", 1) + SMALL)
        # The broker closes a producer: only the client's next PRODUCER tells of that.
        await pair.broker.send(close_frame(1))
        await pair.client.receive(len(close_frame(1)))
        await passed(pair, SMALL + OPENED + SMALL)
        assert sample(pair)[3:] == (2, False, 1)
        assert sample(pair, "other")[3:] == (2, False, 0)


@pytest.mark.threat("frames-hide-content")
async def test_sizes_that_make_no_sense_are_passed_and_counted_as_one_unknown_producer() -> None:
    async with counted() as pair:
        await passed(pair, OPENED + b"\xff" * 30)
        await passed(pair, bytes(1000))
        assert next(slots_of(pair.stage).walk())[2:] == (1000, 0, False, 0)
        assert sample(pair).relays == 0
        assert pair.relay.produces


@pytest.mark.threat("frames-hide-content")
async def test_random_streams_in_random_pieces_pass_unchanged() -> None:
    async with counted() as pair:
        chance = random.Random(42)
        for _ in range(30):
            frames = []
            for _ in range(chance.randrange(1, 20)):
                producer = chance.choice([1, 2, 3, 200, 1 << 40])
                size = chance.choice([0, 10, 1000, 200_000])
                frames.append(
                    chance.choice(
                        [
                            send_frame(producer, payload=chance.randbytes(size)),
                            producer_frame(b"t%d" % chance.randrange(20), producer),
                            close_frame(producer),
                            subscribe_frame(b"t"),
                        ]
                    )
                )
            data = b"".join(frames)
            pieces = pieces_of(data, [chance.choice([1, 7, 50, 5000]) for _ in range(30)])
            assert (await asyncio.gather(pair.broker.receive(len(data)), send_all(pair, pieces)))[0] == data
        counts = list(slots_of(pair.stage).walk())
        assert sum(sample.messages for sample in counts) > 50


# --- limits and drips -----------------------------------------------------------------------------


async def test_a_topic_without_tokens_stops_its_client_and_nothing_else() -> None:
    async with counted() as pair:
        await passed(pair, OPENED)
        await drain(pair)
        assert pair.relay.snapshot().state == "paused: rate"
        await pair.client.send(SMALL)
        assert not await told(pair.broker, 1)
        await pair.broker.send(b"still here")
        assert await pair.client.receive(10) == b"still here"
        slots_of(pair.stage).set_rate(sample(pair).slot, None, None)
        assert await pair.broker.receive(len(SMALL)) == SMALL
        assert reasons(pair) == PauseReason(0)


async def test_a_client_goes_on_by_itself_when_there_are_tokens() -> None:
    async with counted() as pair:
        await passed(pair, OPENED)
        slots_of(pair.stage).set_rate(sample(pair).slot, 2_000_000.0, None)
        await passed(pair, send_frame(1, payload=bytes(700_000)))
        await passed(pair, SMALL)
        assert sample(pair).ran_dry


async def test_one_frame_passes_after_the_longest_pause() -> None:
    async with counted() as pair:
        slots = slots_of(pair.stage)
        slots.books.set_max_pause_millis(50)
        await passed(pair, OPENED)
        await drain(pair)
        await pair.client.send(SMALL * 3)
        assert await pair.broker.receive(3 * len(SMALL)) == SMALL * 3
        assert slots.counts.forced >= 3


async def test_a_limit_holds_for_all_clients_of_a_topic_whichever_engine_has_them() -> None:
    async with counted() as pair:
        await passed(pair, OPENED)
        await drain(pair)
        second = await pair.stage.client()
        async with raw_broker(greet) as broker:
            await second.connect(target=f"127.0.0.1:{broker.port}")
            peer = broker.peers[-1]
            await second.send(OPENED + SMALL)
            assert await peer.receive(len(OPENED + SMALL)) == OPENED + SMALL
            relays = list(pair.stage.proxy.sessions.all_relays())
            await pair.stage.until(
                lambda: all(relay.snapshot().paused[TO_BROKER] == PauseReason.RATE for relay in relays), "both paused"
            )
            # A FIN in a pause is read when the pause is over.
            slots_of(pair.stage).set_rate(sample(pair).slot, None, None)
            second.close()
            peer.close()
            await pair.stage.until(lambda: len(pair.stage.proxy.sessions) == 1, "one session")


async def test_a_drip_passes_one_frame_and_the_pause_holds_on() -> None:
    async with counted() as pair:
        await passed(pair, OPENED + SMALL[:20])
        # A thread that has passed something else behind that is not about to read once more.
        await pair.broker.send(b"x")
        assert await pair.client.receive(1) == b"x"
        relay = pair.relay
        relay.pause(TO_BROKER, PauseReason.THRESHOLD)
        large = send_frame(1, payload=bytes(100_000))
        # One read may pass after a pause: the drip passes what is left of its frame, or the next.
        await pair.client.send(SMALL[20:])
        came = await told(pair.broker, len(SMALL))
        if not came:
            relay.drip(TO_BROKER)
        assert came + await pair.broker.receive(len(SMALL) - 20 - len(came)) == SMALL[20:]
        for _ in range(3):
            # The kernel takes a frame whole.
            await pair.client.send(large)
            assert not await told(pair.broker, 1)
            relay.drip(TO_BROKER)
            assert await pair.broker.receive(len(large)) == large
        assert reasons(pair) == PauseReason.THRESHOLD


async def test_a_reset_in_a_pause_ends_the_pair_at_once() -> None:
    async with counted() as pair:
        await passed(pair, OPENED)
        await drain(pair)
        pair.client.reset()
        await pair.over("connection_reset")


async def test_the_delay_of_a_message_is_what_waits_by_what_passes() -> None:
    async with counted() as pair:
        await passed(pair, OPENED)
        assert relay_delay(pair.relay) == 0.0
        pair.relay.pause(TO_BROKER, PauseReason.THRESHOLD)
        await pair.client.send(SMALL)
        await pair.client.send(SMALL * 100)
        await pair.stage.until(lambda: relay_delay(pair.relay) > 0, "a delay")
