"""A client that leaves, in each kind of wait and in each way: all it held is free at once, and others go on."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.command_type import CommandType
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.large_frames import PLACE_BYTES
from tests.support.brokers.raw_broker import raw_broker, silence
from tests.support.clients.async_client import (
    PING,
    AsyncClient,
    Closed,
    connect_frame,
    lookup_frame,
    new_schema_frame,
    schema_frame,
)
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPIC,
    TOPICS,
    Stage,
    direct_taken,
    jammed,
    namespace,
    staged,
    waiting_for_direct,
)
from tests.support.proxies.shared_lists import (
    all_have_lists,
    being_written,
    waiting_for_direct_memory,
    waiting_for_heap,
    waiting_for_its_predecessor,
    waiting_for_the_broker,
    waiting_to_grow,
)

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
Cut = Callable[[AsyncClient], None]
Wait = Callable[[Stage], Awaitable[AsyncClient]]

cuts = pytest.mark.parametrize(
    "cut", [AsyncClient.close, AsyncClient.reset, AsyncClient.fin], ids=["FIN", "RST", "half-close"]
)


async def awaiting_list(stage: Stage) -> AsyncClient:
    return await held_at_broker(stage, LISTS, None)


async def awaiting_lookup(stage: Stage) -> AsyncClient:
    return await held_at_broker(stage, CommandType.LOOKUP, lookup_frame(1, TOPIC))


async def awaiting_schema(stage: Stage) -> AsyncClient:
    return await held_at_broker(stage, CommandType.GET_SCHEMA, schema_frame(1, TOPIC))


async def awaiting_large_request(stage: Stage) -> AsyncClient:
    return await held_at_broker(stage, CommandType.GET_OR_CREATE_SCHEMA, new_schema_frame(1, TOPIC, 200_000))


async def held_at_broker(stage: Stage, kind: CommandType, frame: bytes | None) -> AsyncClient:
    """Have a client whose question the broker holds."""
    stage.broker.script.hold(kind)
    client = await stage.connected()
    if frame is None:
        await client.ask_topics(namespace(0))
    else:
        await client.send(frame)
    await stage.until(lambda: stage.outstanding == 1, "a question at the broker")
    return client


@cuts
@pytest.mark.parametrize("wait", [awaiting_list, awaiting_lookup, awaiting_schema, awaiting_large_request])
async def test_a_client_that_leaves_while_the_broker_works_frees_all_but_the_question(cut: Cut, wait: Wait) -> None:
    async with staged() as stage:
        client = await wait(stage)
        cut(client)
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        # The broker works on it all the same: its slot and its place on the connection end with the answer.
        kept = {"outstanding questions", "heap on ..."}
        kept |= {"questions to ..."} if wait is awaiting_list else {"lookups", "memory of commands"}
        await stage.until(
            lambda: not any(count for book, count in stage.books().items() if book not in kept), "no more"
        )
        assert stage.outstanding == 1
        others_go_on(stage)
        await stage.until(stage.settled, "the answer passed over")
        assert len((await (await stage.connected()).topics(namespace(0))).topics) == TOPICS


@cuts
async def test_a_client_that_leaves_while_its_answer_waits_to_grow_lets_its_broker_connection_go_on(cut: Cut) -> None:
    async with staged(**TIGHT) as stage:
        jam = await jammed(stage)
        assert stage.proxy.broker_side.pool.states()["paused"] == 1
        cut(jam.d)
        await stage.until(lambda: not stage.heap.growers_waiting, "no grower")
        await stage.until(lambda: stage.proxy.broker_side.pool.states()["paused"] == 0, "no pause")
        await stage.until(lambda: not stage.outstanding, "the answer passed over")
        assert stage.outcome("cancelled") == 1
        # The others have what they had.
        assert stage.direct.queue_size == 2
        assert len(stage.proxy.sessions) == (3 if jam.d.sock.fileno() == -1 else len(stage.proxy.sessions))


@cuts
async def test_a_client_that_leaves_in_its_answer_frees_the_memory_and_what_is_unsent(cut: Cut) -> None:
    async with staged(**TIGHT) as stage:
        reader = await direct_taken(stage)
        staying = await waiting_for_direct(stage, 1)
        session = stage.session_of(reader)
        transport = session.transport
        assert transport is not None
        cut(reader)
        await stage.until(lambda: session.gone, "the end of the session")
        # A permit must not end while its bytes stay behind in the transport.
        assert transport.get_write_buffer_size() == 0
        assert len((await staying.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


@cuts
async def test_a_client_that_leaves_behind_unread_small_answers_frees_what_is_unsent(cut: Cut) -> None:
    async with staged() as stage:
        client = await stage.connected(rcvbuf=4096)
        session = stage.session_of(client)
        transport = session.transport
        assert transport is not None
        # A client is not read for a moment, too, when others have their turn.
        while session.reading or not stage.direct.held:
            client.flood(PING * 10)
            await asyncio.sleep(0)
        cut(client)
        await stage.until(lambda: session.gone, "the end of the session")
        # After a FIN the last answers may still be on their way to a client that could read them.
        client.close()
        await stage.until(lambda: not transport.get_write_buffer_size(), "nothing unsent")
        await stage.until(lambda: not stage.direct.held, "the memory given back")


@cuts
async def test_a_client_that_leaves_while_its_large_frame_waits_to_grow_frees_what_it_had(cut: Cut) -> None:
    async with staged(**TIGHT) as stage:
        leaving, frame = await stage.connected(), new_schema_frame(1, TOPIC, 200_000)
        await leaving.send(frame[:6000])
        await stage.until(lambda: stage.frames.held == PLACE_BYTES, "a place")
        taken, overshooting = stage.frames.try_acquire(stage.frames.available), stage.frames.try_acquire(0)
        assert taken is not None
        assert overshooting is not None
        assert overshooting.try_update(1)
        await leaving.send(frame[6000:80_000])
        await stage.until(lambda: stage.frames.growers_waiting == 1, "a large frame that waits to grow")
        cut(leaving)
        await stage.until(lambda: stage.frames.held == taken.size + 1, "the part given back")
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        taken.release()
        overshooting.release()


@cuts
async def test_a_client_that_leaves_while_its_broker_is_being_connected_takes_the_broker_with_it(cut: Cut) -> None:
    async with raw_broker(silence) as broker, staged() as stage:
        client = await stage.client()
        await client.send(connect_frame(f"127.0.0.1:{broker.port}"))
        await stage.until(lambda: broker.peers, "a connection to the broker")
        cut(client)
        await stage.until(lambda: not len(stage.proxy.sessions), "no session")
        await stage.until(lambda: broker.peers[0].sock.fileno() == -1, "no connection to the broker")


async def test_a_question_whose_asker_has_left_keeps_its_slot_and_the_next_waits_for_it() -> None:
    async with staged(topicListMaxOutstandingPerBroker=1) as stage:
        leaving = await awaiting_list(stage)
        leaving.close()
        staying = await stage.connected()
        await staying.ask_topics(namespace(1))
        await stage.until(lambda: stage.books()["questions to ..."] == 2, "one in the slot, one waiting")
        assert stage.broker.record.topic_questions == 1
        stage.broker.script.gates[LISTS].set()
        assert (await staying.answer()).type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


async def test_a_client_that_sends_its_fin_and_does_not_read_leaves_nothing_to_the_kernel() -> None:
    async with staged(clientSocketSendBufferBytes=1_048_576) as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        await client.ask_topics(namespace(0))
        session = stage.session_of(client)
        await stage.until(lambda: session.kernel_queue_bytes() > 200_000, "a list in the kernel's hands")
        client.fin()
        await stage.until(lambda: len(stage.proxy.sessions) == 0, "its end")
        # What was on its way is gone with an RST, and does not wait for the kernel's patience to end.
        with pytest.raises(Closed, match="reset"):
            await client.receive(10 * LIST_BYTES)


# --- members of a group ---------------------------------------------------------------------------

WaitOfMany = Callable[[Stage], Awaitable[list[AsyncClient]]]
stages = pytest.mark.parametrize(
    "wait",
    [
        waiting_for_its_predecessor,
        waiting_for_heap,
        waiting_for_the_broker,
        waiting_to_grow,
        waiting_for_direct_memory,
        being_written,
    ],
)


def others_go_on(stage: Stage) -> None:
    """Take everything away that holds the group up."""
    for gate in stage.broker.script.gates.values():
        gate.set()
    stage.broker.script.gates.clear()


@pytest.mark.parametrize("leaving", [0, 1], ids=["the payer", "another"])
@stages
async def test_a_member_that_leaves_costs_the_others_nothing(wait: WaitOfMany, leaving: int) -> None:
    async with staged(**TIGHT) as stage:
        members = await wait(stage)
        questions, sessions = stage.broker.record.topic_questions, len(stage.proxy.sessions)
        members[leaving].reset()
        await stage.until(lambda: len(stage.proxy.sessions) == sessions - 1, "one session less")
        staying = [member for member in members if member is not members[leaving]]
        others_go_on(stage)
        for client in set(stage.clients) - set(staying):
            client.close()
        await all_have_lists(staying)
        asked_yet = wait in (waiting_for_its_predecessor, waiting_for_heap)
        assert stage.broker.record.topic_questions == questions + asked_yet


@stages
async def test_the_last_member_to_leave_gives_everything_back_but_the_question(wait: WaitOfMany) -> None:
    async with staged(**TIGHT) as stage:
        members = await wait(stage)
        sessions = len(stage.proxy.sessions)
        for member in members:
            member.reset()
        await stage.until(lambda: len(stage.proxy.sessions) == sessions - 3, "three sessions less")
        for client in list(stage.clients):
            client.close()
        kept = {"outstanding questions", "questions to ..."}
        await stage.until(lambda: not any(n for book, n in stage.books().items() if book not in kept), "nothing held")
        others_go_on(stage)
        await stage.until(stage.settled, "the answers passed over")
        assert len((await (await stage.connected()).topics(namespace(0))).topics) == TOPICS
