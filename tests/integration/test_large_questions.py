"""Questions above 4 KiB: each kind is answered up to `maxLookupFrameBytes`, within a share that no list waits for."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.large_frames import LARGE_FRAME_COPIES
from proxy.clients.services import SHARE_PART
from proxy.core.errors import DIRECT_REFUSAL
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import patient_millis
from tests.support.proxies.proxy_under_test import LIST_BYTES, MIB, TIGHT, TOPIC, Stage, namespace, staged

KIB = 1024
ID = 7
LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
# As the Java client's consumer of 300 topics asks: 11 KB.
NAMES = "|".join(f"persistent://demo/ns-00/topic-{number:010}" for number in range(300))
Fill = Callable[[pb.BaseCommand, str], None]


def lookup_topic(command: pb.BaseCommand, text: str) -> None:
    command.lookupTopic.CopyFrom(pb.CommandLookupTopic(topic=TOPIC + text, request_id=ID))


def lookup_properties(command: pb.BaseCommand, text: str) -> None:
    lookup_topic(command, "")
    command.lookupTopic.properties.add(key="k", value=text)


def lookup_credentials(command: pb.BaseCommand, text: str) -> None:
    lookup_topic(command, "")
    command.lookupTopic.original_auth_data = text


def partitions(command: pb.BaseCommand, text: str) -> None:
    command.partitionMetadata.CopyFrom(pb.CommandPartitionedTopicMetadata(topic=TOPIC + text, request_id=ID))


def partitions_credentials(command: pb.BaseCommand, text: str) -> None:
    partitions(command, "")
    command.partitionMetadata.original_auth_data = text


def pattern(command: pb.BaseCommand, text: str) -> None:
    asked = pb.CommandGetTopicsOfNamespace(request_id=ID, namespace=namespace(0), topics_pattern=text)
    command.getTopicsOfNamespace.CopyFrom(asked)


def list_hash(command: pb.BaseCommand, text: str) -> None:
    pattern(command, ".*")
    command.getTopicsOfNamespace.topics_hash = text


def list_properties(command: pb.BaseCommand, text: str) -> None:
    pattern(command, ".*")
    command.getTopicsOfNamespace.properties.add(key="k", value=text)


def schema(command: pb.BaseCommand, text: str) -> None:
    command.getSchema.CopyFrom(pb.CommandGetSchema(topic=TOPIC + text, request_id=ID))


def schema_version(command: pb.BaseCommand, text: str) -> None:
    command.getSchema.CopyFrom(pb.CommandGetSchema(topic=TOPIC, request_id=ID, schema_version=text.encode()))


def new_schema(command: pb.BaseCommand, text: str) -> None:
    made = pb.CommandGetOrCreateSchema(topic=TOPIC, request_id=ID)
    made.schema.CopyFrom(pb.Schema(name="s", type=pb.Schema.String, schema_data=text.encode()))
    command.getOrCreateSchema.CopyFrom(made)


METADATA = (
    CommandType.PARTITIONED_METADATA,
    CommandType.PARTITIONED_METADATA_RESPONSE,
    "partitionMetadataResponse",
)
KINDS: dict[Fill, tuple[int, int, str]] = {
    lookup_topic: (CommandType.LOOKUP, CommandType.LOOKUP_RESPONSE, "lookupTopicResponse"),
    lookup_properties: (CommandType.LOOKUP, CommandType.LOOKUP_RESPONSE, "lookupTopicResponse"),
    lookup_credentials: (CommandType.LOOKUP, CommandType.LOOKUP_RESPONSE, "lookupTopicResponse"),
    partitions: METADATA,
    partitions_credentials: METADATA,
    pattern: (LISTS, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, "getTopicsOfNamespaceResponse"),
    list_hash: (LISTS, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, "getTopicsOfNamespaceResponse"),
    list_properties: (LISTS, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, "getTopicsOfNamespaceResponse"),
    schema: (CommandType.GET_SCHEMA, CommandType.GET_SCHEMA_RESPONSE, "getSchemaResponse"),
    schema_version: (CommandType.GET_SCHEMA, CommandType.GET_SCHEMA_RESPONSE, "getSchemaResponse"),
    new_schema: (
        CommandType.GET_OR_CREATE_SCHEMA,
        CommandType.GET_OR_CREATE_SCHEMA_RESPONSE,
        "getOrCreateSchemaResponse",
    ),
}
every_kind = pytest.mark.parametrize("fill", KINDS, ids=lambda fill: fill.__name__)


def frame_of(fill: Fill, total_bytes: int) -> bytes:
    """Build a request whose frame is of that size, but for a few bytes."""

    def built(size: int) -> bytes:
        command = pb.BaseCommand(type=KINDS[fill][0])
        fill(command, "x" * size)
        return commands.frame(command)

    size = total_bytes
    for _ in range(3):
        size += total_bytes - len(built(size))
    made = built(size)
    assert total_bytes - 2 <= len(made) <= total_bytes
    return made


async def answered(stage: Stage, client: AsyncClient, fill: Fill) -> None:
    answer = await client.answer()
    _, kind, name = KINDS[fill]
    assert answer.type == kind, str(answer)[:300]
    assert getattr(answer, name).request_id == ID
    await stage.until(lambda: stage.frames.held == stage.direct.held == 0, "all memory back")


@every_kind
@pytest.mark.parametrize("size", [4 * KIB + 3, 11 * KIB, 100 * KIB, MIB])
async def test_every_question_is_answered_up_to_the_largest_frame(fill: Fill, size: int) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(frame_of(fill, size))
        await answered(stage, client, fill)
        assert stage.frames.statistics().peak_held >= LARGE_FRAME_COPIES * (size - 2)
        await client.ping()


@every_kind
async def test_a_question_above_the_largest_frame_ends_the_connection_at_its_first_bytes(fill: Fill) -> None:
    async with staged(maxLookupFrameBytes=100 * KIB) as stage:
        client = await stage.connected()
        await client.send(frame_of(fill, 100 * KIB + 3)[:200])
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("frame_too_large") == 1, "a frame that is too large")
        assert stage.frames.statistics().peak_held == 0


async def test_a_consumer_of_three_hundred_names_has_its_list() -> None:
    async with staged() as stage:
        command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
        pattern(command, NAMES)
        for _ in range(2):
            client = await stage.connected()
            await client.send(commands.frame(command))
            await answered(stage, client, pattern)
        seen = stage.broker.record.commands(LISTS)
        assert [each.getTopicsOfNamespace.topics_pattern for each in seen] == [NAMES, NAMES]


@pytest.mark.parametrize(
    "fill", [fill for fill in KINDS if fill not in (lookup_topic, partitions)], ids=lambda fill: fill.__name__
)
async def test_a_question_without_memory_is_refused_in_its_own_form_and_the_connection_lives(fill: Fill) -> None:
    async with staged(**TIGHT) as stage:
        taken = stage.frames.try_acquire(stage.frames.limit, key="others")
        assert taken is not None
        client = await stage.connected()
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        large = frame_of(fill, 100 * KIB)
        await client.send(large)
        answer = await client.answer()
        assert said(answer) == (ID, ServerError.TooManyRequests, DIRECT_REFUSAL)
        own_form = KINDS[fill][0] in (CommandType.LOOKUP, CommandType.PARTITIONED_METADATA)
        assert answer.type == (KINDS[fill][1] if own_form else CommandType.ERROR)
        await client.ping()
        taken.release()
        await client.send(large)
        await answered(stage, client, fill)


async def test_a_question_without_memory_whose_id_stands_behind_a_long_topic_ends_the_connection() -> None:
    async with staged(**TIGHT) as stage:
        taken = stage.frames.try_acquire(stage.frames.limit, key="others")
        assert taken is not None
        client = await stage.connected()
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis=150)
        await client.send(frame_of(lookup_topic, 100 * KIB))
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("memory_limit") == 1, "a cause")
        taken.release()


@pytest.mark.threat("large-questions")
async def test_a_list_whose_question_is_large_needs_no_more_direct_memory_than_any_other() -> None:
    async with staged(**TIGHT) as stage:
        # All but what one list takes: its question would not fit into the rest.
        taken = stage.direct.try_acquire(stage.direct.limit - LIST_BYTES - 2 * KIB)
        assert taken is not None
        client = await stage.connected()
        await client.send(frame_of(pattern, 200 * KIB))
        assert (await client.answer()).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
        assert stage.frames.statistics().peak_held > stage.direct.limit // SHARE_PART
        taken.release()


@pytest.mark.parametrize("leaves", [False, True])
async def test_lists_that_wait_for_their_turn_are_charged_until_their_answer(leaves: bool) -> None:
    many: dict[str, Any] = {"maxTopicListInFlightDirectMemSizeMB": 20}
    async with staged(**many) as stage:
        gate = stage.broker.script.hold(LISTS)
        client = await stage.connected()
        await client.send(frame_of(pattern, 100 * KIB) * 5)
        await stage.until(lambda: stage.frames.held >= 5 * LARGE_FRAME_COPIES * 100 * KIB - 50, "five that are held")
        assert stage.direct.held == 0
        if leaves:
            client.close()
        gate.set()
        for _ in range(0 if leaves else 5):
            assert (await client.answer()).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
        await stage.until(lambda: stage.frames.held == 0, "all memory back")


@pytest.mark.threat("large-questions")
async def test_a_crowd_of_large_questions_holds_no_more_than_its_share_and_all_are_answered() -> None:
    crowded = {**TIGHT, "topicListRequestTimeoutMillis": patient_millis(20_000)}
    async with staged(**crowded) as stage:
        clients = [await stage.connected() for _ in range(20)]
        for client in clients:
            await client.send(frame_of(pattern, 30 * KIB))
        clients.append(await stage.connected())
        await clients[-1].ask_topics(namespace(1))
        # All read at once: what a client does not read holds the memory of others.
        kinds = {answer.type for answer in await asyncio.gather(*(client.answer(pong=True) for client in clients))}
        assert kinds == {pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE}
        assert stage.frames.statistics().peak_held <= MIB // SHARE_PART + LARGE_FRAME_COPIES * 30 * KIB


def said(answer: pb.BaseCommand) -> tuple[int, int, str]:
    if answer.type == pb.BaseCommand.LOOKUP_RESPONSE:
        found = answer.lookupTopicResponse
        return found.request_id, found.error, found.message
    if answer.type == pb.BaseCommand.PARTITIONED_METADATA_RESPONSE:
        metadata = answer.partitionMetadataResponse
        return metadata.request_id, metadata.error, metadata.message
    return answer.error.request_id, answer.error.error, answer.error.message
