"""Own the stages of a group of equal topic-list requests, over real sockets: each is waited for as an event."""

import asyncio
from collections.abc import Sequence

from protocol.command_type import CommandType
from protocol.commands import request_id_of
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    SLOW_READER_RCVBUF,
    TOPICS,
    Stage,
    direct_taken,
    jammed,
    namespace,
    waiting_for_direct,
)

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


async def joined(stage: Stage, members: int, number: int = 0) -> list[AsyncClient]:
    """Have that many clients ask for the same list; all of them are in its group when this returns."""
    clients = [await stage.connected() for _ in range(members)]
    before = stage.lookups.held
    for client in clients:
        await client.ask_topics(namespace(number))
    await stage.until(lambda: stage.lookups.held == before + members, "all requests read")
    return clients


async def behind_a_question(stage: Stage, members: int, number: int = 0) -> tuple[AsyncClient, list[AsyncClient]]:
    """Have a question at the broker, which holds its answers, and a group that waits for it to be answered."""
    stage.broker.script.hold(LISTS)
    (first,) = await joined(stage, 1, number)
    await stage.until(lambda: stage.outstanding == 1, "a question at the broker")
    return first, await joined(stage, members, number)


def let_go(stage: Stage) -> None:
    """Let the broker answer, from now on too."""
    stage.broker.script.gates.pop(LISTS).set()


async def has_list(client: AsyncClient, topics: int = TOPICS, request_id: int | None = 1) -> None:
    answer = await client.answer()
    assert answer.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
    assert request_id is None or request_id_of(answer) == request_id
    assert len(answer.getTopicsOfNamespaceResponse.topics) == topics


async def all_have_lists(clients: Sequence[AsyncClient], topics: int = TOPICS) -> None:
    await asyncio.gather(*(has_list(client, topics) for client in clients))


async def waiting_for_its_predecessor(stage: Stage) -> list[AsyncClient]:
    _, members = await behind_a_question(stage, 3)
    await stage.until(lambda: counted(stage.proxy.counters, "lists_joined") == 2, "all in one group")
    return members


async def waiting_for_heap(stage: Stage) -> list[AsyncClient]:
    await jammed(stage)
    members = await joined(stage, 3, 4)
    await stage.until(lambda: counted(stage.proxy.counters, "lists_joined") == 2, "all in one group")
    await stage.until(lambda: stage.heap.queue_size == 1, "one place in the queue for all")
    return members


async def waiting_for_the_broker(stage: Stage) -> list[AsyncClient]:
    _, members = await behind_a_question(stage, 3)
    gate = stage.broker.script.gates.pop(LISTS)
    stage.broker.script.hold(LISTS)
    gate.set()
    await stage.until(lambda: stage.broker.record.topic_questions == 2, "the group's question")
    # Else the question before is under way, too.
    await stage.until(lambda: stage.broker.record.outstanding_topic_questions == 1, "the answer before")
    return members


async def waiting_to_grow(stage: Stage) -> list[AsyncClient]:
    await direct_taken(stage)
    await waiting_for_direct(stage, 1)
    # Both questions are asked before the first answer overshoots: no estimate would be given any more.
    gate = stage.broker.script.hold(LISTS)
    await joined(stage, 1, 2)
    await stage.until(lambda: stage.broker.record.outstanding_topic_questions == 1, "one question")
    del stage.broker.script.gates[LISTS]
    members_gate = stage.broker.script.hold(LISTS)
    # The members' question waits for a place at the broker until all have joined.
    stage.change(topicListMaxOutstandingPerBroker=1)
    members = await joined(stage, 3, 3)
    await stage.until(lambda: counted(stage.proxy.counters, "lists_joined") == 2, "all in one group")
    stage.change(topicListMaxOutstandingPerBroker=64)
    await stage.until(lambda: stage.broker.record.outstanding_topic_questions == 2, "two questions")
    gate.set()
    await stage.until(lambda: stage.direct.queue_size == 2, "an answer that overshoots")
    members_gate.set()
    await stage.until(lambda: stage.heap.growers_waiting == 1, "an answer that waits to be read")
    assert counted(stage.proxy.counters, "lists_joined") == 2
    return members


async def waiting_for_direct_memory(stage: Stage) -> list[AsyncClient]:
    await direct_taken(stage)
    stage.broker.script.hold(LISTS)
    _, members = await behind_a_question(stage, 3, 1)
    let_go(stage)
    await stage.until(lambda: stage.direct.queue_size == 2, "two groups that wait for direct memory")
    return members


async def being_written(stage: Stage) -> list[AsyncClient]:
    stage.broker.script.hold(LISTS)
    (first,) = await joined(stage, 1)
    await stage.until(lambda: stage.outstanding == 1, "a question at the broker")
    members = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(3)]
    for member in members:
        await member.ask_topics(namespace(0))
    await stage.until(lambda: stage.lookups.held == 4, "all requests read")
    let_go(stage)
    await has_list(first)
    await stage.until(lambda: stage.books()["bodies being sent"] == 3, "three bodies under way")
    return members
