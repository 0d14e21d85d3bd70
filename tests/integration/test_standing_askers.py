"""Clients that stand still after their questions went out: heap memory is left for the lists of others.

A question of a client that reads, or whose list has room in the send buffer, waits for no turn. What such a client does
while the broker answers is its own affair. Verdicts hang on the order of events: the others are served while those that
stand have read nothing.
"""

import asyncio
from typing import Any, Final

import pytest

from limiter.permit import Permit
from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, lookup_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TOPIC,
    Stage,
    namespace,
    staged,
)
from tests.support.proxies.storms import LIMIT_MIB, NAMES, STORM, listed, newcomer, proven, stood, timeless

NEIGHBOURS: Final = ("127.0.0.2", LOOPBACK)
# Those that stand ask for twice as much as heap memory has room for.
STANDING: Final = 2 * LIMIT_MIB * MIB // LIST_BYTES
# More answers than the kernel takes for a client with a small receive buffer, and of a size that it takes some of.
LOOKUPS, FEW_LOOKUPS = 600, 200
LISTS_IN_BUFFERS: Final = 99
# Lists for which a send buffer of 16 KiB has room, with the 6 KiB of a request, and heap memory for two thirds of them.
SMALL_TOPICS: Final = 90
SMALL_NAMES: Final = GeneratedTopics(LISTS_IN_BUFFERS + 1, SMALL_TOPICS, 100)
SMALL: Final[dict[str, Any]] = {
    **STORM,
    "maxTopicListInFlightHeapMemSizeMB": 1,
    "maxTopicListInFlightDirectMemSizeMB": 1,
}


def look_up(client: AsyncClient, count: int) -> None:
    """Ask for answers that nobody reads."""
    client.flood(b"".join(lookup_frame(client.next_id(), TOPIC) for _ in range(count)))


async def list_of(client: AsyncClient) -> pb.BaseCommand:
    """Read all that comes until the list does."""
    while (answer := await client.answer(pong=True)).type != pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE:
        assert answer.type == pb.BaseCommand.LOOKUP_RESPONSE, answer
    return answer


def waiting(stage: Stage) -> int:
    """Count the lists that wait for a share, for a turn, or for heap memory."""
    queues = stage.proxy.memory.queues
    turns = sum(queue.unproven.queue_size for queue in queues.all().values())
    return stage.proxy.memory.unproven.waiting + turns + queues.heap_queue_size


def share_taken(stage: Stage) -> Permit:
    """Have others that do not read hold the share of those that are silent."""
    taken = stage.unproven.try_acquire(stage.unproven.limit)
    assert taken is not None
    return taken


async def stand_after_asking(stage: Stage, clients: list[AsyncClient]) -> Permit:
    """Have proven readers ask for a list each, and then stand still before a broker that is slow has answered."""
    for client in clients:
        await listed(client, len(clients))
    gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
    for number, client in enumerate(clients):
        await client.ask_topics(namespace(number))
    await stage.until(lambda: stage.outstanding == len(clients), "questions at the broker")
    for client in clients:
        look_up(client, LOOKUPS)
    outputs = [stage.session_of(client).output for client in clients]
    await stage.until(lambda: all(output.waiting for output in outputs), "answers that nobody reads")
    await stood(stage, clients)
    assert not any(proven(stage, client) for client in clients)
    taken = share_taken(stage)
    gate.set()
    return taken


@pytest.mark.threat("askers-stand-still")
async def test_clients_that_read_and_then_stand_leave_heap_memory_to_their_neighbours() -> None:
    async with timeless(NAMES, **STORM) as stage:
        standing = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(STANDING)]
        taken = await stand_after_asking(stage, standing)
        full = stage.heap.limit - LIST_BYTES
        await stage.until(lambda: waiting(stage) == STANDING or stage.heap.held > full, "lists that wait")
        for number, source in enumerate(NEIGHBOURS, STANDING + 1):
            await newcomer(stage, number, source)
        assert stage.heap.held <= stage.heap.limit * 3 // 4
        taken.release()
        # Nobody was refused or closed for the sake of others: those that begin to read now have their lists.
        answers = await asyncio.gather(*map(list_of, standing))
        assert all(answer.getTopicsOfNamespaceResponse.topics for answer in answers)


@pytest.mark.threat("askers-stand-still")
async def test_lists_that_lose_their_room_in_the_send_buffer_leave_heap_memory_to_others() -> None:
    async with staged(SMALL_NAMES, **SMALL) as stage:
        known = await stage.connected()
        for number in range(LISTS_IN_BUFFERS):
            await known.topics(namespace(number))
        taken = share_taken(stage)
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        silent = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(LISTS_IN_BUFFERS)]
        for number, client in enumerate(silent):
            await client.ask_topics(namespace(number))
        for client in silent:
            look_up(client, FEW_LOOKUPS)
        outputs = [stage.session_of(client).output for client in silent]
        await stage.until(
            lambda: not any(output.has_room_for(SMALL_TOPICS * 100) for output in outputs), "buffers without room"
        )
        gate.set()
        await stage.until(lambda: waiting(stage) == len(silent), "lists that wait")
        for source in NEIGHBOURS:
            await newcomer(stage, LISTS_IN_BUFFERS, source)
        assert stage.heap.held <= stage.heap.limit * 3 // 4
        taken.release()
        answers = await asyncio.gather(*map(list_of, silent))
        assert all(answer.getTopicsOfNamespaceResponse.topics for answer in answers)


@pytest.mark.threat("readers-stand-at-next")
async def test_clients_that_read_a_shared_list_and_stand_with_the_next_are_closed_while_others_wait() -> None:
    async with timeless(NAMES, **{**STORM, "topicListWriteMinBytesPerSecond": 1}) as stage:
        silent, *standing = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(STANDING)]
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        first = await stage.connected()
        await first.ask_topics(namespace(STANDING))
        await stage.until(lambda: stage.outstanding, "a question, behind which all others share the next one")
        for client in (silent, *standing):
            await client.ask_topics(namespace(STANDING))
        counters = stage.proxy.counters
        await stage.until(lambda: counted(counters, "lists_joined") == len(standing), "a group of all of them")
        gate.set()
        assert (await first.answer(pong=True)).getTopicsOfNamespaceResponse.topics
        # One list is in the share for all of them, and stays there for the client that shows nothing.
        await asyncio.gather(*(client.receive(400 * 1024) for client in standing))

        def shown() -> bool:
            # Threads write a list for many, and say how far they are once a second.
            stage.proxy.sockets.pump.catch_up()
            return all(proven(stage, client) for client in standing)

        await stage.until(shown, "readers that are proven")
        assert stage.unproven.held
        for number, client in enumerate(standing):
            await client.ask_topics(namespace(number))
        await stage.until(lambda: stage.heap.held + LIST_BYTES > stage.heap.limit, "second lists in heap memory")
        second = await stood(stage, standing)
        async with asyncio.TaskGroup() as newcomers:
            for number in range(STANDING + 1, STANDING + 3):
                newcomers.create_task(newcomer(stage, number))
            await stage.until(lambda: stage.heap.short, "newcomers that wait for heap memory")
            await stage.proxy.memory.writes.sweep(second + 1)
        assert 0 < stage.caused("reads_too_slowly") < len(standing)
        assert stage.session_of(silent), "a client that has shown nothing is not closed"
