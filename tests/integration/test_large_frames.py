"""Frames of clients that are larger than what a connection at rest may hold: capped, booked, or passed over."""

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.large_frames import LARGE_FRAME_COPIES
from proxy.core.errors import DIRECT_REFUSAL
from tests.support.clients.async_client import AsyncClient, connect_frame, new_schema_frame
from tests.support.proxies.proxy_under_test import MIB, TIGHT, TOPIC, direct_taken, staged

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


@pytest.mark.parametrize("auth_bytes", [1 * KIB, 5 * KIB, 60 * KIB])
async def test_a_connect_of_up_to_60_kib_is_served(auth_bytes: int) -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(auth_bytes)))
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert stage.direct.held == 0


async def test_a_connect_above_64_kib_is_closed_at_its_first_bytes() -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(65 * KIB))[:100])
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large") == 1, "a frame that is too large")
        assert stage.direct.statistics().peak_held == 0


async def test_a_large_connect_to_a_broker_is_forwarded() -> None:
    async with staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{stage.broker.port}", auth_data=bytes(60 * KIB)))
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        assert stage.direct.held == 0


@pytest.mark.parametrize("size", [4 * KIB, 4 * KIB + 1, 500 * KIB, MIB])
async def test_a_request_of_up_to_1_mib_is_served(size: int) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(exactly(size))
        await accepted(client, 1)
        held = stage.direct.statistics().peak_held
        assert held == (size * LARGE_FRAME_COPIES if size > 4 * KIB else 0)


async def test_a_request_above_1_mib_closes_the_connection_at_its_first_bytes() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(exactly(MIB + 1)[:100])
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large") == 1, "a frame that is too large")
        assert stage.direct.statistics().peak_held == 0


async def test_a_large_frame_waits_for_its_permit_before_it_is_read() -> None:
    async with staged(**TIGHT) as stage:
        reader = await direct_taken(stage)
        client = await stage.connected()
        request = exactly(200 * KIB)
        sent = client.send_now(request)
        await stage.until(lambda: stage.direct.queue_size == 1, "a large frame that waits")
        session = stage.session_of(client)
        assert not session.reading
        assert session._decoder.stored_bytes <= 4 * KIB
        reader.close()
        await client.send(request[sent:])
        await accepted(client, 1)


async def test_a_large_frame_without_a_permit_is_passed_over_and_the_connection_lives() -> None:
    async with staged(**TIGHT) as stage:
        await direct_taken(stage)
        client = await stage.connected()
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        await client.send(exactly(200 * KIB, request_id=9))
        error = await client.error(9)
        assert (error.error, error.message) == (ServerError.TooManyRequests, DIRECT_REFUSAL)
        (refusal,) = stage.proxy.refusals.recent
        assert (refusal.stage, refusal.subject) == ("direct", "GET_OR_CREATE_SCHEMA")
        await client.ping()
        await client.send(exactly(3 * KIB, request_id=10))
        await accepted(client, 10)
        assert len(stage.broker.record.commands(CommandType.GET_OR_CREATE_SCHEMA)) == 1


async def test_a_large_connect_without_a_permit_is_closed() -> None:
    async with staged(**TIGHT) as stage:
        await direct_taken(stage)
        client = await stage.client()
        await client.send(connect_frame(auth_data=bytes(60 * KIB)))
        # 180 KiB still fit behind the 700 KiB that are taken: a second one does not.
        assert (await client.command()).type == pb.BaseCommand.CONNECTED
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        others = [await stage.client() for _ in range(2)]
        for other in others:
            await other.send(connect_frame(auth_data=bytes(60 * KIB))[:-1])
        await stage.until(lambda: stage.caused("memory_limit") == 1, "one client closed for memory")


async def test_a_large_frame_holds_its_permit_until_the_answer() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.GET_OR_CREATE_SCHEMA)
        client = await stage.connected()
        await client.send(exactly(500 * KIB))
        await stage.until(lambda: stage.outstanding == 1, "the question")
        assert stage.direct.held == 500 * KIB * LARGE_FRAME_COPIES
        gate.set()
        await accepted(client, 1)
        await stage.until(lambda: not stage.direct.held, "the permit given back")


async def test_a_large_frame_that_is_not_served_needs_no_permit() -> None:
    async with staged(**TIGHT) as stage:
        producer = pb.CommandProducer(request_id=4, producer_id=1, topic=TOPIC, producer_name="x" * 900 * KIB)
        client = await stage.connected()
        await client.send(commands.frame(pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)))
        # The request id is not the first field of PRODUCER: it cannot be known without the body.
        assert (await client.answer()).error.error == ServerError.NotAllowedError
        await client.ping()
        assert stage.direct.statistics().peak_held == 0


@pytest.mark.parametrize(
    "half", [connect_frame(auth_data=bytes(60 * KIB))[: 30 * KIB], exactly(900 * KIB)[: 450 * KIB]]
)
async def test_a_client_that_leaves_in_a_large_frame_gives_its_permit_back(half: bytes) -> None:
    async with staged() as stage:
        client = await (stage.client() if len(half) < 64 * KIB else stage.connected())
        await client.send(half)
        await stage.until(lambda: stage.direct.held > 0, "a booked frame")
        client.close()
        await stage.until(stage.settled, "nothing left")
        assert stage.caused("client_closed") == 1


async def test_partial_large_frames_never_hold_more_than_the_direct_limit() -> None:
    async with staged(**TIGHT) as stage:
        for _ in range(20):
            client = await stage.client()
            await client.send(connect_frame(auth_data=bytes(60 * KIB))[: 30 * KIB])
        await stage.until(lambda: stage.direct.queue_size > 0, "clients that wait")
        assert stage.direct.statistics().peak_held <= MIB
        assert stage.direct.held // (60 * KIB * LARGE_FRAME_COPIES) == 5
        # A client without large frames is not concerned.
        await (await stage.connected()).ping()
