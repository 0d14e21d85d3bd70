"""What one client is sent, and in what order: whole frames, one body at a time, and no memory for who does not read."""

import asyncio

import pytest

from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.connection import ClientConnection
from proxy.net.output import OVERSHOOT_BYTES
from tests.support.clients.async_client import PING, AsyncClient, lookup_frame, new_schema_frame, schema_frame
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPIC,
    TOPICS,
    Stage,
    direct_taken,
    namespace,
    staged,
)

# More than one slab: its writer waits in the middle of it.
SCHEMA_BYTES = 700_000
LIST_ANSWER = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


async def flooded(stage: Stage, client: AsyncClient, frame: bytes) -> ClientConnection:
    """Send `frame` again and again until the proxy stops reading, and give its side of the connection."""
    session = stage.session_of(client)
    while session.reading:
        client.flood(frame * 16)
        await asyncio.sleep(0)
    # What the kernel still takes changes nothing any more.
    for _ in range(100):
        client.flood(frame * 1000)
        await asyncio.sleep(0)
    assert not session.reading
    return session


async def test_answers_that_come_while_a_body_is_written_wait_behind_it() -> None:
    async with staged() as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.session_of(client).output.holds_memory, "a body being written")
        await client.send(PING * 3 + lookup_frame(77, TOPIC))
        await stage.until(lambda: stage.lookups.held == 1, "the lookup's answer")
        received = [await client.command() for _ in range(5)]
        assert received[0].type == LIST_ANSWER
        assert len(received[0].getTopicsOfNamespaceResponse.topics) == TOPICS
        assert [command.type for command in received[1:4]] == [pb.BaseCommand.PONG] * 3
        assert request_id_of(received[4]) == 77


@pytest.mark.parametrize("list_first", [True, False])
async def test_a_body_that_comes_while_another_is_written_waits_behind_it(list_first: bool) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(new_schema_frame(1, TOPIC, SCHEMA_BYTES))
        await client.command()
        slow = await stage.connected(SLOW_READER_RCVBUF)
        asked = [slow.ask_topics(namespace(0)), slow.send(schema_frame(77, TOPIC))]
        first, second = asked if list_first else reversed(asked)
        await first
        await stage.until(lambda: stage.session_of(slow).output.holds_memory, "a body being written")
        alone = stage.direct.held
        await second
        await stage.until(lambda: stage.direct.held > alone and not stage.outstanding, "a second that was read")
        received = [await slow.command() for _ in range(2)]
        listed, schema = received if list_first else reversed(received)
        assert len(listed.getTopicsOfNamespaceResponse.topics) == TOPICS
        assert schema.getSchemaResponse.schema.schema_data == bytes(SCHEMA_BYTES)


async def test_a_connection_holds_one_direct_permit_at_a_time() -> None:
    async with staged() as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        for number in range(4):
            await client.ask_topics(namespace(number))
        await stage.until(lambda: stage.direct.held >= LIST_BYTES, "a body being written")
        await stage.until(lambda: stage.heap.held >= LIST_BYTES, "a list that waits for its turn")
        assert stage.direct.queue_size == 0
        for _ in range(4):
            assert (await client.command()).type == LIST_ANSWER
        assert stage.direct.statistics().peak_held < 2 * LIST_BYTES


@pytest.mark.parametrize("frame", [PING, lookup_frame(1, TOPIC)], ids=["PING", "LOOKUP"])
async def test_a_client_that_floods_and_never_reads_ends_bounded(frame: bytes) -> None:
    async with staged() as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        session = await flooded(stage, client, frame)
        # One read of frames, each with its answer, is what can be there beyond the first that did not leave.
        assert session.output.pending_bytes <= 64 * 1024
        assert stage.direct.held <= 64 * 1024
        await (await stage.connected()).ping()


async def test_floods_without_direct_memory_close_their_clients_only() -> None:
    async with staged(**TIGHT) as stage:
        reader, neighbour = await direct_taken(stage), await stage.connected()
        permit = stage.direct.try_acquire(stage.direct.available)
        assert permit is not None
        # One of them at a time may overshoot a little; the others have to go.
        for _ in range(3):
            client = await stage.connected(SLOW_READER_RCVBUF)
            session = stage.session_of(client)
            while session.open and session.reading:
                client.flood(PING * 16)
                await asyncio.sleep(0)
        await stage.until(lambda: stage.caused("memory_limit") == 2, "two clients closed for memory")
        assert stage.direct.statistics().peak_held <= MIB + OVERSHOOT_BYTES
        await neighbour.ping()
        permit.release()
        assert (await reader.command()).type == LIST_ANSWER
