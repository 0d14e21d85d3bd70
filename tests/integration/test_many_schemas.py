"""Clients that make and ask for many different schemas and read no answer: others are served, nothing stays held."""

import asyncio

from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import AsyncClient, new_schema_frame, schema_frame
from tests.support.proxies.proxy_under_test import TOPIC, staged

CLIENTS = 12
SCHEMAS = 25
SCHEMA_BYTES = 100_000


async def uploads(client: AsyncClient, number: int) -> None:
    """Make schemas of other topics than everybody else, one after the other."""
    for schema in range(SCHEMAS):
        await client.send(new_schema_frame(schema + 1, f"{TOPIC}-{number}-{schema}", SCHEMA_BYTES))
        answer = await client.answer()
        assert answer.type == pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, answer


async def test_many_different_schemas_hold_up_no_lookup_and_leave_nothing_behind() -> None:
    async with staged(maxTopicListInFlightDirectMemSizeMB=2, maxTopicListInFlightHeapMemSizeMB=2) as stage:
        other = await stage.connected()
        makers = [await stage.connected() for _ in range(CLIENTS)]
        await asyncio.gather(*(uploads(client, number) for number, client in enumerate(makers)))
        readers = [await stage.connected() for _ in range(CLIENTS)]
        for number, reader in enumerate(readers):
            frames = (schema_frame(schema + 1, f"{TOPIC}-{number}-{schema}") for schema in range(SCHEMAS))
            await reader.send(b"".join(frames))
        await stage.until(lambda: stage.direct.held, "answers that wait for their readers")
        assert (await other.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
        await other.ping()
        assert stage.direct.held <= 2 * stage.direct.limit
        for reader in readers:
            reader.reset()
        await stage.until(lambda: not stage.direct.held, "all memory given back")
        assert (await other.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect
