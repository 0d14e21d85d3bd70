"""Topic lists for watchers on relayed connections: limited as all topic lists are, and nobody else is cut off."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from limiter.permit import Permit
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.metrics.prometheus import ProxyMetrics
from proxy.relay.engine import Relay
from proxy.relay.watch_limits import SHARE_PART, WatchOvershoot
from tests.integration.test_direct_mode import greet
from tests.support.brokers.embedded.session import message_frame
from tests.support.brokers.embedded.topics import ListedTopics
from tests.support.brokers.raw_broker import CONNECTED, RawBroker, raw_broker
from tests.support.clients.async_client import PING, AsyncClient
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import MIB, Stage, namespace, staged
from tests.support.proxies.relays import TO_CLIENT, reads, waits_for_memory
from tests.support.sockets.frames import scalable_diff, scalable_snapshot, watch_success, watch_update

KIB: Final = 1024
WINDOW: Final = 256 * KIB
FOREVER_SECONDS: Final = 600.0
MESSAGE: Final = message_frame(1000)
UPDATE: Final = watch_update(1, ["persistent://public/default/new"])
TOPICS: Final = [f"persistent://public/default/{number:072}" for number in range(10_000)]
LIST: Final = watch_success(1, TOPICS)
# Lists of scalable topics (5.0): all of them, and changes.
SNAPSHOT: Final = scalable_snapshot(1, TOPICS)
DIFF: Final = scalable_diff(1, ["topic://public/default/new"], ["topic://public/default/old"])
LONG_DIFF: Final = scalable_diff(1, TOPICS[:5000], TOPICS[5000:])


@dataclass
class Pair:
    """A client and a broker with the proxy in between."""

    stage: Stage
    client: AsyncClient
    broker: AsyncClient
    relay: Relay

    async def over(self, cause: str) -> None:
        await self.stage.until(lambda: not len(self.stage.proxy.sessions), "no session")
        assert self.stage.caused(cause) == 1, counted_by(self.stage.proxy.counters, "disconnects")

    async def paused(self) -> None:
        await self.stage.until(lambda: waits_for_memory(self.relay), "a watch frame that waits")


@pytest.fixture(scope="module")
def huge() -> bytes:
    """Build one frame of 20 MB: 200,000 names."""
    return watch_success(1, TOPICS * 20)


async def joined(stage: Stage, broker: RawBroker, rcvbuf: int | None = None) -> Pair:
    before = set(stage.proxy.sessions.all_relays())
    client = await stage.client(rcvbuf)
    await client.connect(target=f"127.0.0.1:{broker.port}")
    (relay,) = set(stage.proxy.sessions.all_relays()) - before
    return Pair(stage, client, broker.peers[-1], relay)


@asynccontextmanager
async def paired(pause: float = FOREVER_SECONDS) -> AsyncIterator[Pair]:
    """Join a client to a broker; a watch frame waits for `pause` seconds at most."""
    async with staged(relayBufferBytes=WINDOW) as stage, raw_broker(greet) as broker:
        stage.proxy.watch_limits.max_pause_seconds = pause
        yield await joined(stage, broker)


def exhaust(stage: Stage) -> Permit:
    """Take all direct memory."""
    permit = stage.direct.try_acquire(stage.direct.limit)
    assert permit is not None
    return permit


def seen(stage: Stage, kind: str) -> int:
    """Give the number of frames of a kind that passed."""
    return counted(stage.proxy.counters, "watch_frames", kind)


def overshoots(stage: Stage) -> dict[str, float]:
    return {why: count for why, count in counted_by(stage.proxy.counters, "watch_overshoots").items() if count}


async def send_all(peer: AsyncClient, frames: Iterable[bytes]) -> None:
    for frame in frames:
        await peer.send(frame)


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [LIST, SNAPSHOT, DIFF, LONG_DIFF], ids=["topics", "scalable topics", "a change", "many changes"]
)
async def test_upstream_weak_point_6_watch_traffic_is_limited(names: bytes) -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        client, stage = pair.client, pair.stage
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(pair.broker, (MESSAGE, names, MESSAGE)))
            assert await client.receive(len(MESSAGE)) == MESSAGE
            await stage.until(lambda: stage.direct.queue_size == 1, "a watch frame in the queue for direct memory")
            assert not reads(pair.relay, TO_CLIENT)
            taken.release()
            assert await client.receive(len(names) + len(MESSAGE)) == names + MESSAGE
        await stage.until(lambda: not stage.direct.held, "the permit given back")
        assert (seen(stage, "success"), seen(stage, "update")) == (names is LIST, names is not LIST)
        counters = stage.proxy.counters
        assert (counted(counters, "watch_bytes"), counted(counters, "watch_pauses")) == (len(names), 1)
        assert overshoots(stage) == {}


async def test_a_frame_passes_under_permits_that_are_never_above_the_relays_window(huge: bytes) -> None:
    async with paired() as pair:
        stage = pair.stage
        await pair.broker.send(huge[: 2 * MIB])
        assert await pair.client.receive(2 * MIB) == huge[: 2 * MIB]
        await stage.until(lambda: not stage.direct.held, "nothing held for bytes that are still to come")
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(pair.broker, (huge[2 * MIB :], UPDATE)))
            assert await pair.client.receive(len(huge) - 2 * MIB + len(UPDATE)) == huge[2 * MIB :] + UPDATE
        await stage.until(lambda: not stage.direct.held, "the permits given back")
        assert 0 < stage.direct.statistics().peak_held <= WINDOW


@pytest.mark.threat("watch-frames-hold-memory")
async def test_watch_frames_that_were_only_announced_keep_no_list_waiting() -> None:
    async with (
        staged(relayBufferBytes=WINDOW, maxTopicListInFlightDirectMemSizeMB=1) as stage,
        raw_broker(greet) as broker,
    ):
        pairs = [await joined(stage, broker) for _ in range(8)]
        for pair in pairs:
            await pair.broker.send(LIST[:14])
            assert await pair.client.receive(14) == LIST[:14]
        # A thread of the native engine says a moment later that the client has taken them.
        await stage.until(lambda: stage.direct.held == 0, "memory of what was taken")
        client = await stage.connected()
        assert (await client.topics(namespace(1))).topics


@pytest.mark.threat("watch-frames-hold-memory")
async def test_clients_that_leave_watch_frames_lying_hold_a_part_of_the_memory(huge: bytes) -> None:
    async with (
        staged(relayBufferBytes=WINDOW, maxTopicListInFlightDirectMemSizeMB=2) as stage,
        raw_broker(greet) as broker,
    ):
        # Of each at least a pipe of 64 KiB is left lying: twice the part in all.
        stuck = [await joined(stage, broker, rcvbuf=128 * KIB) for _ in range(16)]
        async with asyncio.TaskGroup() as group:
            pouring = [group.create_task(send_all(pair.broker, [huge] * 3)) for pair in stuck]
            # A frame that waits for its permit stands still, too, but only for a moment.
            await stage.until(
                lambda: not any(reads(pair.relay, TO_CLIENT) for pair in stuck) and stage.direct.held,
                "relays that stand",
            )
            await stage.until(lambda: overshoots(stage).get(WatchOvershoot.SHARE), "frames above the part")
            assert stage.direct.held <= stage.direct.limit // SHARE_PART
            for task in pouring:
                task.cancel()


# --- nobody is cut off ----------------------------------------------------------------------------


@pytest.mark.parametrize("names", [UPDATE, DIFF, SNAPSHOT], ids=["topics", "a change", "scalable topics"])
async def test_a_consumer_beside_a_watcher_goes_on_while_the_limiter_is_exhausted(huge: bytes, names: bytes) -> None:
    async with paired(pause=0.1) as pair:
        taken = exhaust(pair.stage)
        frames = [MESSAGE, huge, MESSAGE, names, MESSAGE]
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(pair.broker, frames))
            for frame in frames:
                assert await pair.client.receive(len(frame)) == frame
        assert overshoots(pair.stage)[WatchOvershoot.PAUSE_OVER] >= 1
        assert sum(overshoots(pair.stage).values()) == 2
        assert pair.stage.direct.held == taken.size
        taken.release()


async def test_pongs_and_acks_of_the_client_pass_while_a_frame_waits() -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        await pair.broker.send(UPDATE)
        await pair.paused()
        for _ in range(10):
            await pair.client.send(PING)
            assert await pair.broker.receive(len(PING)) == PING
        assert waits_for_memory(pair.relay)
        taken.release()
        assert await pair.client.receive(len(UPDATE)) == UPDATE


async def test_updates_of_all_watchers_keep_their_order_among_messages() -> None:
    async with paired(pause=0.02) as pair:
        kinds = (lambda _, __: MESSAGE, watch_update, scalable_snapshot, scalable_diff)
        frames = [kinds[number % 4](number % 3, [f"persistent://a/b/{number}"]) for number in range(2000)]
        stream = b"".join(frames)
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(pair.broker, (stream[at : at + 777] for at in range(0, len(stream), 777))))
            received = bytearray()
            while len(received) < len(stream):
                # Memory comes and goes all the time.
                taken = pair.stage.direct.try_acquire(pair.stage.direct.limit)
                received += await pair.client.receive(min(5000, len(stream) - len(received)))
                if taken is not None:
                    taken.release()
        assert bytes(received) == stream
        # Those above a thousand questions in a second are told of when the second is over.
        await pair.stage.until(lambda: seen(pair.stage, "update") == 1500, "all frames counted")


# --- the end of a pause ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [UPDATE, DIFF], ids=["topics", "scalable topics"])
async def test_a_client_that_is_cut_in_a_pause_frees_its_place_in_the_queue(names: bytes) -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        await pair.broker.send(MESSAGE + names)
        await pair.paused()
        pair.client.reset()
        await pair.over("connection_reset")
        assert pair.stage.direct.queue_size == 0
        assert await pair.broker.rest() == b""
        taken.release()
        assert pair.stage.direct.held == 0


async def test_a_broker_that_is_cut_in_a_pause_ends_the_pair_and_what_was_read_goes_out() -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        await pair.broker.send(MESSAGE + UPDATE)
        await pair.paused()
        pair.broker.reset()
        await pair.over("connection_reset")
        assert pair.stage.direct.queue_size == 0
        assert await pair.client.rest() == MESSAGE + UPDATE
        assert overshoots(pair.stage) == {WatchOvershoot.BROKER_GONE: 1}
        taken.release()


@pytest.mark.parametrize("client_first", [False, True])
async def test_fins_in_a_pause_lose_no_byte(client_first: bool) -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        await pair.broker.send(MESSAGE + UPDATE)
        await pair.paused()
        await pair.broker.send(LIST[: 100 * KIB])
        if client_first:
            pair.client.fin()
            assert await pair.broker.rest() == b""
        pair.broker.fin()
        for _ in range(20):
            await asyncio.sleep(0)
        assert pair.stage.direct.queue_size == 1
        taken.release()
        assert await pair.client.rest() == MESSAGE + UPDATE + LIST[: 100 * KIB]
        pair.client.close()
        await pair.over("client_closed" if client_first else "broker_closed")


async def test_a_frame_that_came_behind_the_handshake_is_limited_too() -> None:
    async def hasty(peer: AsyncClient) -> None:
        await peer.command()
        await peer.send(CONNECTED + UPDATE)
        await asyncio.Event().wait()

    async with staged() as stage, raw_broker(hasty) as broker:
        stage.proxy.watch_limits.max_pause_seconds = FOREVER_SECONDS
        taken = exhaust(stage)
        pair = await joined(stage, broker)
        await pair.paused()
        taken.release()
        assert await pair.client.receive(len(UPDATE)) == UPDATE


# --- the switch -----------------------------------------------------------------------------------


async def test_the_switch_is_for_new_relays_and_spares_walked_ones() -> None:
    async with paired() as pair:
        taken = exhaust(pair.stage)
        pair.stage.proxy.watch_limits.enabled = False
        await pair.broker.send(UPDATE)
        assert await pair.client.receive(len(UPDATE)) == UPDATE
        raw = await pair.stage.relayed()
        await raw.ping()
        # Switched on again: the frames of the relay that was walked from its beginning are counted, no others.
        pair.stage.proxy.watch_limits.enabled = True
        taken.release()
        await pair.broker.send(UPDATE)
        assert await pair.client.receive(len(UPDATE)) == UPDATE
        await watch(raw, 1, namespace(0), ".*")
        assert (seen(pair.stage, "update"), seen(pair.stage, "success")) == (2, 0)


# --- with the embedded broker ---------------------------------------------------------------------


async def watch(client: AsyncClient, watcher_id: int, namespace: str, pattern: str) -> pb.BaseCommand:
    request = pb.CommandWatchTopicList(
        request_id=client.next_id(), watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
    )
    await client.send_command(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST, watchTopicList=request))
    return await client.answer()


async def test_a_watcher_hears_of_new_and_deleted_topics_through_the_proxy() -> None:
    store = ListedTopics(["persistent://public/default/a1", "persistent://public/default/b1"])
    async with staged(store) as stage:
        client = await stage.relayed()
        started = (await watch(client, 7, "public/default", "public/default/a.*")).watchTopicListSuccess
        assert (started.watcher_id, list(started.topic)) == (7, ["persistent://public/default/a1"])
        store.add("persistent://public/default/a2")
        await stage.broker.announce(["persistent://public/default/a2"], ["persistent://public/default/b1"])
        update = (await client.answer()).watchTopicUpdate
        assert (update.watcher_id, list(update.new_topics)) == (7, ["persistent://public/default/a2"])
        assert not update.deleted_topics
        assert update.topics_hash != started.topics_hash
        close = pb.CommandWatchTopicListClose(request_id=9, watcher_id=7)
        await client.send_command(pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=close))
        assert (await client.answer()).success.request_id == 9
        await stage.broker.announce(["persistent://public/default/a3"])
        await client.ping()
        assert (seen(stage, "success"), seen(stage, "update")) == (1, 1)


async def test_watch_frames_are_on_the_metrics_page() -> None:
    async with paired(pause=0.02) as pair:
        taken = exhaust(pair.stage)
        frames = LIST + UPDATE + DIFF
        await pair.broker.send(frames)
        assert len(await pair.client.receive(len(frames))) == len(frames)
        page = ProxyMetrics("test", pair.stage.proxy.counters).render().decode()
        samples = {
            (sample.name.removeprefix("pulsar_proxy_watch_"), *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.value and sample.name.startswith("pulsar_proxy_watch_")
        }
        # Who comes right behind a pause has none.
        overshot = [samples.pop(("overshoots_total", "test", why), 0) for why in ("pause_over", "paused_before")]
        assert (overshot[0] >= 1, sum(overshot)) == (True, 2)
        assert samples.pop(("pauses_total", "test")) == overshot[0]
        assert samples.pop(("pause_seconds_total", "test")) > 0.01
        assert samples == {
            ("frames_total", "test", "success"): 1,
            ("frames_total", "test", "update"): 2,
            ("bytes_total", "test"): len(frames),
        }
        taken.release()
