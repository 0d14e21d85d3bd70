"""A broker that announces large answers and sends nothing of them: lists of other brokers come, and so do its own."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from protocol.command_type import CommandType
from protocol.commands import request_id_of
from protocol.frames import answer_prefix
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import RawBroker, handshake, raw_broker, request
from tests.support.clients.async_client import AsyncClient, schema_frame
from tests.support.faults.proxy import fault_proxies, service_url
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import MIB, NAME_BYTES, TOPIC, TOPICS, Stage, namespace, staged

# Of heap memory, and of direct memory.
LIMIT_MB = 4
ANNOUNCED_BYTES = 7 * MIB // 2
# The second goes behind the first, on the only connection there is then; the third has the other connection.
QUESTIONS = 3
# Which broker is the home of each hangs on the ports: of 20, one run in some thousand had too few at one of them.
NAMESPACES = 60
ANSWERS = {
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    pb.BaseCommand.GET_SCHEMA: CommandType.GET_SCHEMA_RESPONSE,
}


@dataclass
class TwoBrokers:
    """A stage with two brokers, one of which announces answers that never come; namespaces by their home."""

    stage: Stage
    stuck: RawBroker
    announced: list[int]
    of_the_stuck: list[str]
    of_the_other: list[str]


@asynccontextmanager
async def one_of_two_is_stuck(**keys: Any) -> AsyncIterator[TwoBrokers]:
    announced: list[int] = []

    async def announce(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            asked = await request(peer)
            announced.append(request_id_of(asked))
            kind = ANSWERS[asked.type]
            await peer.send(answer_prefix(kind, announced[-1], ANNOUNCED_BYTES) + b"\x12\x7eab" + 60 * b"x")

    async with (
        raw_broker(announce) as stuck,
        fault_proxies(1) as ways,
        staged(
            GeneratedTopics(NAMESPACES, TOPICS, NAME_BYTES),
            brokerServiceURL=f"{service_url(ways)},127.0.0.1:{stuck.port}",
            maxTopicListInFlightHeapMemSizeMB=LIMIT_MB,
            **keys,
        ) as stage,
    ):
        ways[0].target_port = stage.broker.port
        home = stage.proxy.broker_side.brokers.home
        names = [namespace(number) for number in range(NAMESPACES)]
        theirs = [name for name in names if home(name).port == stuck.port]
        yield TwoBrokers(stage, stuck, announced, theirs, [name for name in names if name not in theirs])
        # Nothing else ends what is outstanding.
        for client in stage.clients:
            client.close()
        for peer in stuck.peers:
            peer.sock.shutdown(socket.SHUT_RDWR)


@pytest.mark.threat("announced-lists-hold-heap")
async def test_lists_of_another_broker_come_while_a_stuck_broker_announces_more_than_the_heap() -> None:
    async with one_of_two_is_stuck() as two:
        stage, client = two.stage, await two.stage.connected()
        await client.topics(two.of_the_other[0])
        for number in range(QUESTIONS):
            await (await stage.connected()).ask_topics(two.of_the_stuck[number])
            await stage.until(lambda number=number: len(two.announced) > number, "announced")  # type: ignore[misc]
        # The last waits for room at its broker, not in the heap.
        await stage.until(lambda: stage.books()["paused broker connections"] == 1, "a list that waits")
        assert stage.heap.held < LIMIT_MB * MIB
        for name in two.of_the_other[1:4]:
            assert len((await client.topics(name)).topics) == TOPICS
        assert stage.outcome("refused_heap") == 0


@pytest.mark.threat("announced-lists-hold-heap")
async def test_a_list_that_a_stuck_broker_does_not_send_comes_from_the_other_while_somebody_waits() -> None:
    async with one_of_two_is_stuck() as two:
        stage, client = two.stage, await two.stage.connected()
        await client.topics(two.of_the_other[0])
        first = await stage.connected()
        await first.ask_topics(two.of_the_stuck[0])
        await stage.until(lambda: two.announced, "announced")
        for number in range(1, QUESTIONS):
            await (await stage.connected()).ask_topics(two.of_the_stuck[number])
            await stage.until(lambda number=number: len(two.announced) > number, "announced")  # type: ignore[misc]
        answer = await first.answer()
        assert len(answer.getTopicsOfNamespaceResponse.topics) == TOPICS
        assert counted(stage.proxy.counters, "lists_given_up") >= 1


@pytest.mark.threat("announced-schemas-hold-memory")
async def test_a_schema_that_a_stuck_broker_does_not_send_keeps_no_list_waiting_for_its_memory() -> None:
    async with one_of_two_is_stuck(maxTopicListInFlightDirectMemSizeMB=LIMIT_MB) as two:
        stage, client = two.stage, await two.stage.connected()
        await client.topics(two.of_the_other[0])
        stage.broker.answers.schemas[TOPIC] = [pb.Schema(name="s", type=pb.Schema.String, schema_data=b"{}")]
        # Brokers are asked for schemas in turn.
        askers = [await stage.connected() for _ in range(2)]
        for asker in askers:
            await asker.send(schema_frame(1, TOPIC))
        await stage.until(lambda: two.announced and stage.direct.held > ANNOUNCED_BYTES, "a schema that is announced")
        assert len((await client.topics(two.of_the_other[1])).topics) == TOPICS
        assert counted(stage.proxy.counters, "schemas_given_up") == 1
        # The other broker has the schema, too.
        assert {(await asker.answer()).type for asker in askers} == {pb.BaseCommand.GET_SCHEMA_RESPONSE}
