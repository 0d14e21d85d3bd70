"""Flows of lookup mode: a lookup, partition metadata, a schema, a topic list alone and in a group."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from protocol.command_type import CommandType
from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.pool import Purpose
from tests.faults.flows.flow import CLIENT_SIDE, LookupFlow, Refused
from tests.support.clients.async_client import AsyncClient, Closed
from tests.support.clients.commands import command
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, namespace

if TYPE_CHECKING:
    from tests.faults.scene import Scene

SCHEMA_BYTES = 30_000
MEMBERS = 3
LISTED = namespace(7)
LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


async def answer_to(client: AsyncClient, request_id: int) -> pb.BaseCommand:
    """Read the answer to a request; an ERROR is a refusal."""
    answer = await client.answer(pong=True)
    if answer.type == pb.BaseCommand.ERROR:
        assert answer.error.request_id == request_id, answer
        raise Refused(answer.error.message)
    return answer


async def asked(client: AsyncClient, kind: str) -> pb.BaseCommand:
    """Ask about the topic, and give the answer."""
    request_id = client.next_id()
    await client.send_command(command(kind, request_id=request_id, topic=TOPIC))
    answer = await answer_to(client, request_id)
    assert request_id_of(answer) == request_id
    return answer


class Lookup(LookupFlow):
    purpose = Purpose.LOOKUPS

    async def ask(self, at: "Scene") -> None:
        found = (await asked(self.client, "LOOKUP")).lookupTopicResponse
        if found.response == pb.CommandLookupTopicResponse.Failed:
            raise Refused(found.message)
        assert found.brokerServiceUrl == at.stage.broker.service_url


class PartitionMetadata(LookupFlow):
    purpose = Purpose.LOOKUPS

    async def ask(self, at: "Scene") -> None:
        found = (await asked(self.client, "PARTITIONED_METADATA")).partitionMetadataResponse
        if found.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
            raise Refused(found.message)
        assert found.partitions == 0


class Schema(LookupFlow):
    purpose = Purpose.SCHEMAS

    async def prepare(self, at: "Scene") -> None:
        await super().prepare(at)
        at.stage.broker.answers.schemas[TOPIC] = [
            pb.Schema(name="s", type=pb.Schema.String, schema_data=b"s" * SCHEMA_BYTES)
        ]

    async def ask(self, at: "Scene") -> None:
        found = (await asked(self.client, "GET_SCHEMA")).getSchemaResponse
        if found.HasField("error_code"):
            raise Refused(found.error_message)
        assert found.schema.schema_data == b"s" * SCHEMA_BYTES


async def whole_list(at: "Scene", client: AsyncClient, request_id: int) -> None:
    """Read a list, and see that it is whole."""
    found = (await answer_to(client, request_id)).getTopicsOfNamespaceResponse
    assert found.request_id == request_id
    assert list(found.topics) == list(at.stage.broker.answers.store.names(LISTED))


class TopicList(LookupFlow):
    purpose = Purpose.LISTS

    async def ask(self, at: "Scene") -> None:
        await whole_list(at, self.client, await self.client.ask_topics(LISTED))


class GroupedList(LookupFlow):
    """Equal requests that share one question; the fault strikes the client of one, or the question of all."""

    purpose = Purpose.LISTS

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self.others: list[AsyncClient] = []

    async def prepare(self, at: "Scene") -> None:
        await super().prepare(at)
        self.others = [await at.connected(at.stage.proxy.port) for _ in range(MEMBERS)]

    async def ask(self, at: "Scene") -> None:
        broker, counters = at.stage.broker, at.stage.proxy.counters
        asked, joined = broker.record.topic_questions, counted(counters, "lists_joined")
        gate = broker.script.hold(LISTS)
        first, *rest = self.others
        numbers = [await first.ask_topics(LISTED)]
        await at.stage.until(lambda: at.struck or broker.record.topic_questions > asked, "the first question")
        # The question of the others is asked when the answer to the first begins.
        numbers += [await other.ask_topics(LISTED) for other in rest]
        request_id = await self.client.ask_topics(LISTED)
        most = joined + MEMBERS - 1
        await at.stage.until(lambda: counted(counters, "lists_joined") >= most - at.struck, "a group")
        gate.set()
        del broker.script.gates[LISTS]
        async with asyncio.TaskGroup() as group:
            own = group.create_task(ended(whole_list(at, self.client, request_id)))
            for other, number in zip(self.others, numbers, strict=True):
                end = await ended(whole_list(at, other, number))
                # The fault of one member is no affair of the others; the fault of a question is of all who asked it.
                if isinstance(end, Closed) or (end is not None and self.side == CLIENT_SIDE):
                    raise AssertionError(f"another member got {end!r}")
                other.close()
        if (end := own.result()) is not None:
            raise end


async def ended(answer: Coroutine[Any, Any, None]) -> Exception | None:
    """Wait for an answer; return the end that it had instead."""
    try:
        await answer
    except (Refused, Closed, OSError) as end:
        return end
    return None
