"""Frames of clients that are larger than what a connection at rest may hold: capped, booked, or passed over."""

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import varint
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.large_frames import LARGE_FRAME_COPIES, PLACE_BYTES, UNBOOKED_FRAME_BYTES
from proxy.clients.services import SHARE_PART
from proxy.core.errors import DIRECT_REFUSAL
from tests.support.brokers.raw_broker import raw_broker, silence
from tests.support.clients.async_client import AsyncClient, connect_frame, new_schema_frame
from tests.support.clients.list_clients import turns
from tests.support.proxies.proxy_under_test import (
    LEAST_RATE,
    LIST_BYTES,
    MIB,
    TIGHT,
    TOPIC,
    Stage,
    namespace,
    staged,
)

KIB = 1024


def exactly(total_bytes: int, request_id: int = 1) -> bytes:
    """Build a schema request whose frame is of that size."""
    data_bytes = total_bytes
    for _ in range(3):
        data_bytes += total_bytes - len(new_schema_frame(request_id, TOPIC, data_bytes))
    built = new_schema_frame(request_id, TOPIC, data_bytes)
    assert len(built) == total_bytes
    return built


async def accepted(client: AsyncClient, request_id: int) -> None:
    answer = await client.answer()
    assert answer.type == pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE
    assert answer.getOrCreateSchemaResponse.request_id == request_id
    assert not answer.getOrCreateSchemaResponse.HasField("error_code")


async def waiting(stage: Stage, count: int) -> None:
    await stage.until(lambda: stage.handshakes.queue_size == count, f"{count} clients that wait")


@pytest.mark.parametrize("auth_bytes", [1 * KIB, 5 * KIB, 60 * KIB])
async def test_a_connect_of_up_to_60_kib_is_served(auth_bytes: int) -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(auth_bytes)))
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert stage.direct.held == 0


async def test_a_connect_above_136_kib_is_closed_at_its_first_bytes() -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(136 * KIB))[:100])
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large") == 1, "a frame that is too large")
        assert stage.direct.statistics().peak_held == 0


@pytest.mark.parametrize("size", [4 * KIB, 4 * KIB + 1, 500 * KIB, MIB])
async def test_a_request_of_up_to_1_mib_is_served(size: int) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(exactly(size))
        await accepted(client, 1)
        held = stage.frames.statistics().peak_held
        assert held == (size * LARGE_FRAME_COPIES if size > 4 * KIB else 0)


async def test_a_large_frame_waits_for_memory_before_more_of_it_is_read() -> None:
    async with staged(**TIGHT) as stage:
        taken = stage.frames.try_acquire(stage.frames.limit)
        assert taken is not None
        client = await stage.connected()
        request = exactly(200 * KIB)
        sent = client.send_now(request)
        await stage.until(lambda: stage.frames.queue_size == 1, "a large frame that waits")
        assert not stage.session_of(client).reading
        assert stage.frames.held == stage.frames.limit
        taken.release()
        await client.send(request[sent:])
        await accepted(client, 1)


async def test_a_large_frame_without_memory_is_passed_over_and_the_connection_lives() -> None:
    async with staged(**TIGHT) as stage:
        taken = stage.frames.try_acquire(stage.frames.limit)
        assert taken is not None
        client = await stage.connected()
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        await client.send(exactly(200 * KIB, request_id=9))
        error = await client.error(9)
        assert (error.error, error.message) == (ServerError.TooManyRequests, DIRECT_REFUSAL)
        (refusal,) = stage.proxy.reports.refusals.recent
        assert (refusal.stage, refusal.subject) == ("direct", "GET_OR_CREATE_SCHEMA")
        await client.ping()
        await client.send(exactly(3 * KIB, request_id=10))
        await accepted(client, 10)
        assert len(stage.broker.record.commands(CommandType.GET_OR_CREATE_SCHEMA)) == 1
        taken.release()


async def test_a_large_frame_without_memory_for_its_rest_gives_back_what_it_had() -> None:
    async with staged(**TIGHT) as stage:
        client, request = await stage.connected(), exactly(200 * KIB, request_id=9)
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        await client.send(request[: 20 * KIB])
        await stage.until(lambda: stage.frames.held >= 20 * KIB, "a part that is charged")
        taken = stage.frames.try_acquire(stage.frames.available)
        overshooting = stage.frames.try_acquire(0)
        assert taken is not None
        assert overshooting is not None
        assert overshooting.try_update(1)
        await client.send(request[20 * KIB :])
        assert (await client.error(9)).message == DIRECT_REFUSAL
        assert stage.frames.held == taken.size + 1
        await client.ping()
        taken.release()
        overshooting.release()


async def test_a_large_connect_without_memory_is_closed_and_topic_lists_are_not_concerned() -> None:
    async with staged() as stage:
        taken = stage.handshakes.try_acquire(stage.handshakes.limit, key="others")
        assert taken is not None
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(60 * KIB)))
        await stage.until(lambda: stage.handshakes.queue_size == 1, "a CONNECT that waits")
        small = await stage.connected()
        await small.topics(namespace(0))
        # Its clock is over only when the other client is served.
        stage.change(handshakeTimeoutMillis=1)
        await stage.until(
            lambda: stage.caused("memory_limit") + stage.caused("handshake_timeout") == 1, "a client closed for memory"
        )
        assert await client.rest() == b""
        assert stage.direct.held == 0
        taken.release()


@pytest.mark.threat("large-connect")
async def test_large_connects_of_different_addresses_take_turns() -> None:
    async with staged(haProxyProtocolEnabled="true") as stage:
        taken = stage.handshakes.try_acquire(stage.handshakes.limit, key="others")
        assert taken is not None
        for number, host in enumerate(["192.0.2.1"] * 5 + ["192.0.2.2"], 1):
            client = await stage.client()
            header = f"PROXY TCP4 {host} 127.0.0.1 1 {stage.proxy.port}\r\n".encode()
            await client.send(header + connect_frame(auth_data=bytes(60 * KIB))[: 10 * KIB])
            await waiting(stage, number)
        (waiters,) = stage.handshakes.waiters(10, at_once=10)
        assert [waiter.key for waiter in waiters] == ["192.0.2.1", "192.0.2.2", *["192.0.2.1"] * 4]
        taken.release()


async def test_a_large_frame_holds_its_permit_until_the_answer() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.GET_OR_CREATE_SCHEMA)
        client = await stage.connected()
        await client.send(exactly(500 * KIB))
        await stage.until(lambda: stage.outstanding == 1, "the question")
        assert stage.frames.held == 500 * KIB * LARGE_FRAME_COPIES
        gate.set()
        await accepted(client, 1)
        await stage.until(lambda: not stage.frames.held, "the permit given back")


async def test_a_large_frame_that_is_not_served_needs_no_permit() -> None:
    async with staged(**TIGHT) as stage:
        producer = pb.CommandProducer(request_id=4, producer_id=1, topic=TOPIC, producer_name="x" * 900 * KIB)
        client = await stage.connected()
        await client.send(commands.frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)))
        # The request id is not the first field of PRODUCER: it cannot be known without the body.
        assert (await client.answer()).error.error == ServerError.NotAllowedError
        await client.ping()
        assert stage.frames.statistics().peak_held == 0


@pytest.mark.threat("announced-frames", "large-connect")
@pytest.mark.parametrize("greeted", [True, False], ids=["a request", "a CONNECT"])
async def test_frames_that_are_announced_hold_nothing_and_a_list_is_served_at_once(greeted: bool) -> None:
    # A tenth of what once held all of the default limit: 34 connections, 6.8 KB in all.
    async with staged(maxTopicListInFlightDirectMemSizeMB=10) as stage:
        for _ in range(34):
            client = await (stage.connected() if greeted else stage.client())
            await client.send((exactly(MIB) if greeted else connect_frame(auth_data=bytes(63 * KIB)))[:200])
        await stage.until(lambda: len(stage.proxy.services.uploads) == 34, "34 frames that begin")
        for number in range(3):
            await (await stage.connected()).topics(namespace(number))
        assert stage.direct.statistics().peak_held < 3 * LIST_BYTES
        assert stage.direct.statistics().queued == stage.handshakes.held == 0
        assert len(stage.proxy.services.uploads) == 34


@pytest.mark.threat("large-frames-stop")
async def test_frames_that_wait_to_grow_and_send_nothing_keep_out_neither_lists_nor_honest_frames() -> None:
    # A tenth of what once held all of the default limit for 25 s: 170 connections that send 64 KiB of a MiB each.
    async with staged(maxTopicListInFlightDirectMemSizeMB=10) as stage:
        attackers = [await stage.connected() for _ in range(170)]
        for attacker in attackers:
            await attacker.send(exactly(MIB, request_id=7)[: 64 * KIB])
        await stage.until(lambda: stage.frames.growers_waiting + stage.frames.queue_size > 0, "frames that wait")
        for number in range(3):
            await (await stage.connected()).topics(namespace(number))
        assert stage.direct.statistics().queued == 0
        assert stage.direct.statistics().peak_held <= 3 * LIST_BYTES
        assert stage.frames.statistics().peak_held <= 10 * MIB // SHARE_PART + LARGE_FRAME_COPIES * MIB
        honest = await stage.connected()
        await honest.send(exactly(MIB - 1, request_id=8))
        await accepted(honest, 8)
        # As many were refused as was needed; their connections live, and pass over what is left of their frames.
        refused = stage.proxy.reports.refusals.recent
        assert {(refusal.stage, refusal.reason) for refusal in refused} == {("direct", DIRECT_REFUSAL)}
        # Frames are read in the order in which the kernel tells of them: the first to be refused may be anybody's.
        (first,) = [each for each in attackers if "{}:{}".format(*each.sock.getsockname()) == refused[0].client]
        assert (await first.error(7)).error == ServerError.TooManyRequests
        await first.send(exactly(MIB, request_id=7)[64 * KIB :])
        await first.ping()


async def test_the_share_of_frames_follows_the_limit_of_direct_memory() -> None:
    async with staged(maxTopicListInFlightDirectMemSizeMB=10) as stage:
        stage.change(maxTopicListInFlightDirectMemSizeMB=20)
        assert stage.frames.limit == 20 * MIB // SHARE_PART
        stage.change(maxTopicListInFlightDirectMemSizeMB=0)
        assert stage.frames.limit == 0


@pytest.mark.threat("connect-to-silent-host")
async def test_large_connects_hold_no_memory_while_their_broker_is_dialled() -> None:
    async with raw_broker(silence) as broker, staged() as stage:
        clients = [await stage.client() for _ in range(3)]
        for client in clients:
            await client.send(connect_frame(f"127.0.0.1:{broker.port}", auth_data=bytes(60 * KIB)))
        await stage.until(lambda: len(broker.peers) == 3, "brokers that do not answer")
        assert stage.handshakes.held == 0
        assert stage.handshakes.statistics().peak_held >= 180 * KIB


@pytest.mark.threat("connect-to-silent-host")
async def test_a_connect_with_too_much_for_a_broker_is_closed_before_the_broker_is_dialled() -> None:
    async with raw_broker(silence) as broker, staged() as stage:
        target = f"127.0.0.1:{broker.port}"
        # Flags that this proxy does not know would be passed on.
        unknown = pb.FeatureFlags.FromString(b"\xa2\x06" + varint(5 * KIB) + bytes(5 * KIB))
        for version, flags in (("v" * 5 * KIB, pb.FeatureFlags()), ("v", unknown)):
            connect = pb.CommandConnect(
                client_version=version, protocol_version=21, proxy_to_broker_url=target, feature_flags=flags
            )
            client = await stage.client()
            await client.send(commands.frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect)))
            assert await client.rest() == b""
        assert stage.caused("frame_too_large") == 2
        assert stage.handshakes.held == 0
        assert not broker.peers


async def test_a_frame_holds_at_most_twice_what_has_come() -> None:
    async with staged() as stage:
        client, request, before = await stage.connected(), exactly(900 * KIB), 0
        for sent in (3 * KIB, 10 * KIB, 100 * KIB, 400 * KIB):
            await client.send(request[before:sent])
            least = sent if sent > UNBOOKED_FRAME_BYTES else 0
            await stage.until(lambda least=least: stage.frames.held >= least, "what has come")  # type: ignore[misc]
            assert stage.frames.held <= max(2 * least, PLACE_BYTES * (sent > UNBOOKED_FRAME_BYTES))
            before = sent


@pytest.mark.threat("large-frame-drips")
async def test_a_dripping_frame_is_refused_when_another_one_waits_for_its_memory() -> None:
    async with staged(**TIGHT | LEAST_RATE) as stage:
        dripping, waiting = await stage.connected(), await stage.connected()
        await dripping.send(exactly(900 * KIB, request_id=7)[: 300 * KIB])
        await stage.until(lambda: stage.frames.held >= 300 * KIB, "memory that another one will wait for")
        await waiting.send(exactly(10 * KIB, request_id=8))
        await accepted(waiting, 8)
        assert (await dripping.error(7)).message == DIRECT_REFUSAL
        await dripping.send(exactly(900 * KIB, request_id=7)[300 * KIB :])
        await dripping.ping()


async def test_a_dripping_frame_that_nobody_waits_for_is_left_alone() -> None:
    async with staged(**TIGHT | LEAST_RATE) as stage:
        dripping, request = await stage.connected(), exactly(900 * KIB)
        await dripping.send(request[: 500 * KIB])
        await stage.until(lambda: stage.frames.held > 500 * KIB, "a part that is charged")
        for seconds in range(60, 63):
            await stage.proxy.services.uploads.look(stage.proxy.loop.time() + seconds)
        await dripping.send(request[500 * KIB :])
        await accepted(dripping, 1)


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_command_above_4_kib_that_is_not_served_is_refused_with_its_own_id_behind_its_topic(
    in_pieces: bool,
) -> None:
    async with staged() as stage:
        client = await stage.connected()
        request = producer(TOPIC)
        if in_pieces:
            await client.send(request[:300])
            client.deliver()
            await turns()
        await client.send(request[300 if in_pieces else 0 :])
        # One answer, and the connection goes on behind the frame.
        await client.send(new_schema_frame(8, TOPIC, 10))
        assert (await client.error(7)).error == ServerError.NotAllowedError
        await accepted(client, 8)


async def test_a_command_that_is_not_served_and_whose_id_is_not_in_its_beginning_closes_the_connection() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(producer("x" * 5000))
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large") == 1, "a frame that is too large")


async def test_a_ping_above_4_kib_is_refused() -> None:
    async with staged() as stage:
        client = await stage.connected()
        # A field that no release knows.
        ping = pb.CommandPing.FromString(b"\xa2\x06" + varint(5 * KIB) + bytes(5 * KIB))
        await client.send(commands.frame(pb.BaseCommand(type=pb.BaseCommand.PING, ping=ping)))
        assert (await client.answer()).error.error == ServerError.NotAllowedError


def producer(topic: str) -> bytes:
    made = pb.CommandProducer(request_id=7, producer_id=1, topic=topic, producer_name="x" * 5000)
    return commands.frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=made))
