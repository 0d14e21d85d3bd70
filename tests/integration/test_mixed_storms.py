"""Storms in which some clients do not read: the others are served before any of those begins to read."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.command_type import CommandType
from protocol.commands import PING_FRAME, PONG_FRAME
from protocol.pb import PulsarApi_pb2 as pb
from proxy.net.spill import spill
from tests.support.clients.async_client import AsyncClient
from tests.support.patience import in_time
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPICS,
    Stage,
    direct_taken,
    namespace,
    staged,
)
from tests.support.proxies.storms import (
    LIMIT_MIB,
    NAMES,
    QUICK,
    SLOW,
    STORM,
    has_lists,
    listed,
    newcomer,
    proven,
    stood,
    timeless,
)

LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE
# All that wait for the share of those awake have room in heap memory.
AMPLE_HEAP: Final[dict[str, Any]] = {**STORM, "maxTopicListInFlightHeapMemSizeMB": 4 * LIMIT_MIB}


async def slow_readers(stage: Stage) -> list[AsyncClient]:
    """Have more clients that do not read than direct memory has room for."""
    clients = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(SLOW)]
    for number, client in enumerate(clients):
        await client.ask_topics(namespace(number))
    share = stage.unproven
    await stage.until(lambda: share.queue_size and share.held + LIST_BYTES > share.limit, "readers at their share")
    return clients


@pytest.mark.threat("takes-nothing-others-wait")
async def test_clients_that_read_are_served_while_others_take_nothing() -> None:
    async with staged(NAMES, **STORM) as stage:
        quick = [await stage.connected() for _ in range(QUICK)]
        for number, client in enumerate(quick, SLOW):
            await listed(client, number)
        slow = await slow_readers(stage)
        assert stage.direct.held <= LIMIT_MIB * MIB // 2
        await asyncio.gather(*(listed(client, number) for number, client in enumerate(quick, SLOW + QUICK)))
        assert stage.outcome("answered") == 2 * QUICK
        await has_lists(slow)


@pytest.mark.threat("everybody-waits-for-disk")
async def test_clients_that_read_wait_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing moves in this time: so slow may a disk be.
    monkeypatch.setattr(spill, "SWEEP_SECONDS", 3600)
    async with staged(NAMES, **STORM, topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        quick = [await stage.connected() for _ in range(QUICK)]
        for number, client in enumerate(quick, SLOW):
            await listed(client, number)
        slow = await slow_readers(stage)
        assert stage.direct.held <= LIMIT_MIB * MIB // 2, "lists that can move count half of their size"
        await asyncio.gather(*(listed(client, number) for number, client in enumerate(quick, SLOW + QUICK)))
        await has_lists(slow)


async def test_a_client_that_stands_still_is_unproven_again_until_it_takes_bytes() -> None:
    async with timeless(NAMES, **STORM) as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        output = stage.session_of(client).output
        assert not proven(stage, client)
        await listed(client, 0)
        assert proven(stage, client)
        await client.ask_topics(namespace(1))
        await stage.until(lambda: output.holds_memory, "a body being written")
        # The kernel of a busy machine passes bytes on between the first sweeps, too.
        seconds = itertools.count()
        async with in_time():
            while proven(stage, client):
                await stage.proxy.memory.writes.sweep(next(seconds))
                await asyncio.sleep(0)
        assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
        assert proven(stage, client)


async def pong_blindly(client: AsyncClient) -> None:
    """Answer PINGs without reading anything: a PONG has no number that would tell which PING it answers."""
    while True:
        await client.send(PONG_FRAME)
        await asyncio.sleep(0.005)


@pytest.mark.threat("unread-lists")
async def test_newcomers_that_read_do_not_wait_for_any_number_of_clients_that_do_not() -> None:
    async with staged(NAMES, **STORM) as stage:
        slow = await slow_readers(stage)
        await asyncio.gather(*(newcomer(stage, number) for number in range(SLOW, SLOW + QUICK)))
        assert stage.outcome("answered") == QUICK
        assert not counted(stage.proxy.counters, "disconnects", "reads_too_slowly")
        await has_lists(slow)


@pytest.mark.threat("partial-readers-stand")
async def test_clients_that_answer_a_ping_and_then_stand_give_their_share_to_newcomers() -> None:
    async with timeless(NAMES, **STORM) as stage:
        await slow_readers(stage)
        awake = stage.proxy.memory.unproven.shares.awake
        liars = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(3)]
        for number, liar in enumerate(liars, SLOW):
            await liar.ask_topics(namespace(number))
        async with asyncio.TaskGroup() as tasks:
            lying = [tasks.create_task(pong_blindly(liar)) for liar in liars]
            await stage.until(lambda: awake.queue_size and awake.held, "liars that wait for others")
            for task in lying:
                task.cancel()
            fresh = tasks.create_task(newcomer(stage, SLOW + 3))
            await stage.until(lambda: awake.queue_size > 1, "a newcomer behind them")
            second = 0
            while not fresh.done():
                # The kernel moves bytes in real time, whatever second it is here.
                await asyncio.sleep(0.02)
                await stage.proxy.memory.writes.sweep(second := second + 1)


def line_of_those_awake(stage: Stage) -> int:
    """Count the lists that wait for the share of those awake."""
    return stage.proxy.memory.unproven.shares.awake.queue_size


async def lie(stage: Stage, number: int) -> AsyncClient | None:
    """Ask for a list as a client that answers PINGs; give the client if it has its list at once."""
    liar, waiting = await stage.connected(SLOW_READER_RCVBUF), line_of_those_awake(stage)
    output = stage.session_of(liar).output
    lying = asyncio.get_running_loop().create_task(pong_blindly(liar))
    await liar.ask_topics(namespace(number))
    await stage.until(lambda: output.holds_memory or line_of_those_awake(stage) > waiting, "a list, or a wait")
    lying.cancel()
    return liar if output.holds_memory else None


@pytest.mark.threat("slow-trickle-readers")
@pytest.mark.parametrize(("least", "seconds"), [(1, 1), (0, 9)], ids=["may be closed later", "never closed"])
async def test_clients_that_answer_pings_and_read_slowly_give_their_share_to_newcomers(
    least: int, seconds: int
) -> None:
    async with timeless(NAMES, **{**AMPLE_HEAP, "topicListWriteMinBytesPerSecond": least}) as stage:
        await slow_readers(stage)
        movers = [liar for number in range(SLOW, SLOW + 3) if (liar := await lie(stage, number))]
        assert line_of_those_awake(stage) == 1
        fresh, second = asyncio.get_running_loop().create_task(newcomer(stage, SLOW + 3)), 0
        await stage.until(lambda: line_of_those_awake(stage) == 2, "a newcomer behind them")
        while line_of_those_awake(stage):
            assert second < seconds, "their shares end"
            for mover in movers:
                # So little that it moves, and is far from a quick reader.
                await mover.receive(16 * 1024)
            await stage.proxy.memory.writes.sweep(second := second + 1)
        await fresh
        assert stage.caused("reads_too_slowly") == 0, "there is memory for all of them"


async def test_clients_that_answer_pings_keep_their_share_while_only_silent_clients_wait() -> None:
    async with timeless(NAMES, **{**AMPLE_HEAP, "topicListWriteMinBytesPerSecond": 1}) as stage:
        await slow_readers(stage)
        awake = stage.proxy.memory.unproven.shares.awake
        mover = await lie(stage, SLOW)
        assert mover is not None
        await mover.receive(16 * 1024)
        held = awake.held
        await stage.proxy.memory.writes.sweep(1)
        assert (line_of_those_awake(stage), awake.held) == (0, held)


@pytest.mark.threat("slow-trickle-readers")
async def test_a_newcomer_of_another_address_goes_before_the_line_of_those_that_answer_pings() -> None:
    async with timeless(NAMES, **AMPLE_HEAP) as stage:
        await slow_readers(stage)
        holders = [liar for number in range(SLOW, SLOW + 5) if (liar := await lie(stage, number))]
        waiting = line_of_those_awake(stage)
        assert (len(holders), waiting) == (2, 3)
        served = asyncio.get_running_loop().create_task(newcomer(stage, SLOW + 5, "127.0.0.2"))
        await stage.until(lambda: line_of_those_awake(stage) > waiting, "a newcomer behind them")
        for holder in holders:
            holder.close()
        await served
        assert line_of_those_awake(stage), "others of the first address wait on"


@pytest.mark.threat("ping-answering-crowd")
async def test_a_crowd_that_answers_pings_has_few_questions_out_and_another_address_the_next() -> None:
    async with timeless(NAMES, **STORM) as stage:
        await slow_readers(stage)
        record, wanted = stage.broker.record, range(SLOW, SLOW + QUICK + 1)

        def asked() -> list[int]:
            """Return for which of these namespaces the broker was asked, in this order."""
            spaces = [command.getTopicsOfNamespace.namespace for command in record.commands(LISTS)]
            return [number for space in spaces for number in wanted if space == namespace(number)]

        gate = stage.broker.script.hold(LISTS)
        crowd = [await stage.connected(SLOW_READER_RCVBUF) for _ in range(QUICK)]
        other = await stage.client(SLOW_READER_RCVBUF, source="127.0.0.2")
        await other.connect()
        for number, client in zip(wanted, (*crowd, other), strict=True):
            await client.ask_topics(namespace(number))
            # Each proves that it is awake, and has been heard.
            assert (await client.command()).type == pb.BaseCommand.PING
            await client.send(PONG_FRAME + PING_FRAME)
            assert (await client.answer()).type == pb.BaseCommand.PONG
        assert 0 < len(asked()) <= 3
        gate.set()

        def moved_on() -> bool:
            """Have those leave whose lists are there, until the other address is asked for."""
            for number in asked():
                (*crowd, other)[number - SLOW].close()
            return wanted[-1] in asked()

        await stage.until(moved_on, "a question of another address")
        assert asked().index(wanted[-1]) <= 4


@pytest.mark.threat("partial-readers-stand")
async def test_clients_that_read_a_little_and_then_stand_are_closed_while_others_wait() -> None:
    async with timeless(NAMES, **{**STORM, "topicListWriteMinBytesPerSecond": 1}) as stage:
        shares, direct, sweep = stage.proxy.memory.unproven.shares, stage.direct, stage.proxy.memory.writes.sweep
        standing: list[AsyncClient] = []
        while direct.held + LIST_BYTES <= direct.limit:
            client = await stage.connected(SLOW_READER_RCVBUF)
            await client.ask_topics(namespace(len(standing)))
            await client.receive(400 * 1024)
            standing.append(client)
            await stage.until(lambda: not shares.held, "a reader that is proven")
        second = await stood(stage, standing)
        assert counted(stage.proxy.counters, "disconnects", "reads_too_slowly") == 0, "nobody waits"
        async with asyncio.TaskGroup() as newcomers:
            for number in range(4):
                newcomers.create_task(newcomer(stage, SLOW + number))
            await stage.until(lambda: direct.short, "newcomers that wait for memory")
            await sweep(second + 1)
        await stage.until(lambda: direct.held <= (shares.most_owed or 0), "those that stand at their part")
        closed = counted(stage.proxy.counters, "disconnects", "reads_too_slowly")
        assert 0 < closed < len(standing)


async def with_two_lists(stage: Stage, number: int) -> AsyncClient:
    """Have a client that has read a list stand with two: one is partly sent, the other stays in heap memory."""
    client = await stage.connected(SLOW_READER_RCVBUF)
    await listed(client, SLOW)
    heap, direct = stage.heap.held, stage.direct.held
    await client.ask_topics(namespace(number))
    # While it is encoded it has both.
    await stage.until(lambda: stage.direct.held > direct and stage.heap.held == heap, "a list that is being sent")
    await client.ask_topics(namespace(number + 1))
    await stage.until(lambda: stage.heap.held >= heap + LIST_BYTES, "a list that waits behind another")
    return client


@asynccontextmanager
async def second_lists_in_heap_memory(**keys: object) -> AsyncIterator[tuple[Stage, list[AsyncClient], int]]:
    """Have heap memory full of lists behind those of clients that stand, and newcomers that are served in the end.

    Direct memory is not short. Gives the clients that stand, and the second that this is.
    """
    ample = {"topicListWriteMinBytesPerSecond": 1, "maxTopicListInFlightDirectMemSizeMB": 8 * LIMIT_MIB}
    async with timeless(NAMES, **{**STORM, **ample, **keys}) as stage:
        heap, standing, wanted = stage.heap, list[AsyncClient](), range(SLOW + QUICK, SLOW + QUICK + 4)
        for number in wanted:
            # What is known of a list is asked of heap memory at once: an answer that grows may pass the limit.
            await newcomer(stage, number)
        while heap.held + LIST_BYTES <= heap.limit:
            standing.append(await with_two_lists(stage, 2 * len(standing)))
        second = await stood(stage, standing)
        assert stage.caused("reads_too_slowly") == 0, "nobody waits"
        async with asyncio.TaskGroup() as newcomers:
            for number in wanted:
                newcomers.create_task(newcomer(stage, number))
            await stage.until(lambda: heap.short, "newcomers that wait for heap memory")
            assert not stage.direct.short
            yield stage, standing, second


@pytest.mark.threat("unread-second-list")
async def test_second_lists_of_clients_that_stand_after_a_proof_do_not_fill_heap_memory() -> None:
    async with second_lists_in_heap_memory() as (stage, standing, second):
        await stage.proxy.memory.writes.sweep(second + 1)
        assert 0 < stage.caused("reads_too_slowly") < len(standing)


@pytest.mark.threat("unread-second-list")
async def test_clients_whose_lists_can_go_to_disk_are_not_closed_for_heap_memory(tmp_path: Path) -> None:
    # A quarter of that long they stay in memory while nobody waits: a busy machine takes its time to fill heap memory.
    disk = {"topicListSpillDirectory": str(tmp_path / "lists"), "topicListRequestTimeoutMillis": 600_000}
    async with second_lists_in_heap_memory(**disk) as (stage, _, second):
        await stage.proxy.memory.writes.sweep(second + 1)
        assert stage.caused("reads_too_slowly") == 0
        await stage.until(lambda: counted(stage.proxy.counters, "spill_lists"), "lists on disk")


async def test_a_list_moves_to_disk_while_its_clients_next_list_holds_up_heap_memory(tmp_path: Path) -> None:
    async with staged(
        **TIGHT,
        topicListWriteStallTimeoutMillis=0,
        topicListSpillDirectory=str(tmp_path / "lists"),
    ) as stage:
        quick = await stage.connected()
        await listed(quick, 2)
        slow = await direct_taken(stage)
        await slow.ask_topics(namespace(1))
        await stage.until(lambda: stage.heap.held >= LIST_BYTES, "the next list of the slow client")
        # The size of this list is known, so it gets no heap memory, and nobody waits for direct memory.
        await listed(quick, 2)
        assert counted(stage.proxy.counters, "spill_lists")
        for _ in range(2):
            assert len((await slow.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


@pytest.mark.threat("two-unread-lists")
async def test_second_lists_of_late_readers_leave_heap_memory_to_newcomers_and_are_all_sent() -> None:
    ample = {"topicListWriteMinBytesPerSecond": 1, "maxTopicListInFlightDirectMemSizeMB": 16 * LIMIT_MIB}
    async with timeless(NAMES, **{**STORM, **ample}) as stage:
        heap, late = stage.heap, [await stage.connected(SLOW_READER_RCVBUF) for _ in range(SLOW)]
        for number, client in enumerate(late):
            for which in (number, SLOW + number):
                await client.ask_topics(namespace(which))
        await stage.until(lambda: stage.direct.held >= SLOW // 2 * LIST_BYTES, "lists that nobody reads")
        await stood(stage, late)
        # Whoever reads is served meanwhile.
        for number in range(2 * SLOW, 2 * SLOW + 4):
            await newcomer(stage, number)
        assert not heap.short
        for client in late:
            for _ in range(2):
                answer = await client.answer(pong=True)
                assert len(answer.getTopicsOfNamespaceResponse.topics) == TOPICS
        assert stage.caused("reads_too_slowly") == 0


async def test_the_share_changes_live_and_ends_with_100_percent() -> None:
    async with staged(NAMES, **STORM) as stage:
        slow = await slow_readers(stage)
        held = stage.direct.held
        stage.change(topicListUnprovenReadersMemoryPercent=100)
        await stage.until(lambda: stage.direct.held > held and not stage.unproven.queue_size, "more lists in memory")
        await has_lists(slow)
