"""Equal topic lists shared by many clients, over real sockets: each gets its own answer, the broker is asked twice."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from protocol.command_type import CommandType
from protocol.commands import PONG_FRAME
from protocol.errors import ServerError
from protocol.topic_list import heap_size
from proxy.net.output import Output
from tests.support.brokers.embedded.script import Failure
from tests.support.brokers.embedded.topics import GeneratedTopics, ListedTopics
from tests.support.clients.async_client import PING, command_of, topics_frame
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    TIGHT,
    TOPICS,
    Stage,
    namespace,
    staged,
)
from tests.support.proxies.shared_lists import (
    all_have_lists,
    behind_a_question,
    being_written,
    has_list,
    let_go,
    waiting_for_the_broker,
)

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
OF_4_MB = GeneratedTopics(20, 8_192, 510)
# --- storms ---------------------------------------------------------------------------------------

# What an answer has beside its topics: flags and the hash.
FRAME_FIELDS_BYTES = 64


@pytest.mark.parametrize("store", [None, OF_4_MB], ids=["700 KB", "4 MB"])
async def test_a_storm_of_equal_requests_costs_the_broker_two_questions_and_the_proxy_one_body(
    store: GeneratedTopics | None,
) -> None:
    # 4 MB lists fit nowhere twice.
    limits: dict[str, Any] = dict.fromkeys(TIGHT, 1 if store is None else 5)
    topics, size = (TOPICS, LIST_BYTES) if store is None else (8_192, 8_192 * 513)
    async with staged(store, **limits) as stage:
        first, members = await behind_a_question(stage, 40 if store else 100)
        let_go(stage)
        await all_have_lists([first, *members], topics)
        assert stage.broker.record.topic_questions == 2
        assert counted(stage.proxy.counters, "lists_joined") == len(members) - 1
        # A thread that has written a list tells of it later than the client has it.
        await stage.until(lambda: stage.outcome("answered") == len(members) + 1, "all answered")
        # One group may be read while the other is written, and a limit smaller than both is passed by neither.
        # Two groups may meet: the first question's and that of all who came while it was on the wire.
        assert stage.heap.statistics().peak_held <= 2 * heap_size(size + FRAME_FIELDS_BYTES)
        assert stage.direct.statistics().peak_held <= limits["maxTopicListInFlightDirectMemSizeMB"] * MIB


@pytest.mark.threat("members-in-one-step")
async def test_a_ping_is_heard_between_the_looks_at_the_members_of_a_large_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(topicListUnprovenReadersMemoryPercent=50) as stage:
        first, members = await behind_a_question(stage, 400)
        neighbour, early = await stage.connected(), stage.session_of(first).output
        session, has_room, heard = stage.session_of(neighbour), Output.has_room_for, list[int]()

        def look(output: Output, size: int) -> bool:
            if output is not early:
                if not heard:
                    neighbour.send_now(PING)
                    neighbour.deliver()
                heard.append(session.received_bytes)
            return has_room(output, size)

        monkeypatch.setattr(Output, "has_room_for", look)
        let_go(stage)
        await stage.until(lambda: len(heard) >= len(members), "a look at each member")
        assert heard[0] < heard[len(members) - 1]
        assert await neighbour.frame() == PONG_FRAME


async def test_a_topic_created_before_a_request_is_in_its_answer() -> None:
    store = ListedTopics(["persistent://t/n/topic-0"])
    async with staged(store) as stage:
        for number in range(1, 6):
            gate = stage.broker.script.hold(LISTS)
            early, late = await stage.connected(), await stage.connected()
            await early.ask_topics("t/n")
            await stage.until(lambda: stage.outstanding == 1, "a question at the broker")
            store.add(f"persistent://t/n/topic-{number}")
            await late.ask_topics("t/n")
            await late.ping()
            del stage.broker.script.gates[LISTS]
            gate.set()
            topics = (await late.answer()).getTopicsOfNamespaceResponse.topics
            assert f"persistent://t/n/topic-{number}" in topics
            await early.answer()
        assert stage.broker.record.topic_questions == 10


# --- brokers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ServerError.TopicNotFound, ServerError.AuthorizationError])
async def test_each_member_gets_the_brokers_error_under_its_own_request_id(code: ServerError) -> None:
    async with staged() as stage:
        stage.broker.script.failures[LISTS] = Failure(code, "no such thing")
        _, members = await behind_a_question(stage, 0)
        members = [await stage.connected() for _ in range(4)]
        for number, client in enumerate(members):
            await client.send(topics_frame(7 + number, namespace(0)))
        await stage.until(lambda: stage.lookups.held == 5, "all requests read")
        let_go(stage)
        for number, client in enumerate(members):
            error = await client.error(7 + number)
            assert (error.error, error.message) == (code, "no such thing")
            await client.ping()
        assert stage.broker.record.topic_questions == 2
        assert stage.outcome("failed") == 5


# With two connections a question may go to the other, which is lost, too, and is not asked a third time.
async def test_a_question_lost_once_is_asked_once_more_for_all() -> None:
    async with staged() as stage:
        stage.change_pool(per_key=1)
        members = await waiting_for_the_broker(stage)
        stage.broker.script.gates.clear()
        for session in list(stage.broker.connections):
            session.abort()
        await all_have_lists(members)
        assert counted(stage.proxy.counters, "lists_asked_again") == 1
        assert stage.broker.record.topic_questions == 3


async def test_a_question_lost_twice_is_one_error_for_each() -> None:
    async with staged() as stage:
        stage.change_pool(per_key=1)
        members = await waiting_for_the_broker(stage)
        stage.broker.script.gates.clear()
        stage.broker.script.cut_mid_frame[LISTS] = 1000
        for session in list(stage.broker.connections):
            session.abort()
        for client in members:
            assert (await client.error(1)).error == ServerError.ServiceNotReady
            await client.ping()
        assert counted(stage.proxy.counters, "lists_questions") == 3


# --- writing --------------------------------------------------------------------------------------


async def test_fast_readers_do_not_wait_for_a_slow_one_in_their_group() -> None:
    async with staged(**TIGHT) as stage:
        members = await being_written(stage)
        slow, *fast = members
        await all_have_lists(fast)
        # A thread that has written a list tells of it later than the client has it.
        await stage.until(lambda: stage.books()["bodies being sent"] == 1, "the slow one's body alone")
        assert LIST_BYTES <= stage.direct.held < 2 * LIST_BYTES
        await has_list(slow)
        await stage.until(lambda: not stage.direct.held, "all given back")


async def test_pings_are_answered_while_a_list_goes_to_many() -> None:
    async with staged(OF_4_MB) as stage:
        first, members = await behind_a_question(stage, 60)
        other = await stage.connected()
        let_go(stage)
        reading = [asyncio.get_running_loop().create_task(has_list(client, 8_192)) for client in (first, *members)]
        await stage.until(lambda: stage.books()["bodies being sent"], "bodies under way")
        pongs = 0
        while not all(task.done() for task in reading):
            await other.send(PING)
            assert await other.frame() == PONG_FRAME
            pongs += 1
        await asyncio.gather(*reading)
        assert pongs > 10


async def test_a_small_frame_never_stands_inside_a_shared_body() -> None:
    async with staged() as stage:
        members = await being_written(stage)
        for client in members:
            await client.send(PING)
        for client in members:
            frames = [await client.frame() for _ in range(2)]
            assert len(command_of(frames[0]).getTopicsOfNamespaceResponse.topics) == TOPICS
            assert frames[1] == PONG_FRAME


@pytest.mark.threat("reset-while-list-written")
async def test_the_next_client_with_a_descriptor_gets_nothing_of_a_body_that_was_reset() -> None:
    async with staged() as stage:
        for _ in range(5):
            members = await being_written(stage)
            stage.broker.script.hold(LISTS)
            for member in members[1:]:
                member.reset()
            heirs = [await stage.connected() for _ in range(4)]
            for heir in heirs:
                await heir.ping()
            await has_list(members[0])
            for heir in heirs:
                await heir.ping()
            for client in list(stage.clients):
                client.close()
            await stage.until(stage.settled, "nothing left")


class Stopped(Exception):
    """Have a stage stop its proxy at once."""


async def stopped_in_a_fan_out(stage: AbstractAsyncContextManager[Stage], seen: list[Stage]) -> None:
    async with stage as on:
        seen.append(on)
        await being_written(on)
        await on.until(lambda: on.outcome("answered") == 1, "the first one's end")
        raise Stopped


async def test_a_shutdown_in_the_middle_of_a_fan_out_ends_and_leaves_nothing() -> None:
    lost: list[object] = []
    seen: list[Stage] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    with pytest.raises(Stopped):
        await stopped_in_a_fan_out(staged(), seen)
    (stage,) = seen
    assert stage.settled()
    assert (stage.outcome("cancelled"), counted_by(stage.proxy.counters, "internal_errors"), lost) == (3, {}, [])
