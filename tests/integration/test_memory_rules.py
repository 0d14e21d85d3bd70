"""The memory rules of topic lists: who waits for what, who is refused and how, and that nobody waits for ever."""

import asyncio
from time import sleep

import pytest

from protocol.command_type import CommandType
from protocol.commands import frame
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import heap_size
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.core.errors import DIRECT_REFUSAL, HEAP_REFUSAL
from proxy.requests.lookups import WAITED_TOO_LONG
from proxy.requests.topic_lists.unproven import FIRST_AVERAGE_BYTES
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import lookup_frame, new_schema_frame, schema_frame
from tests.support.patience import patient, patient_millis
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import (
    FLAGS_BYTES,
    LIST_BYTES,
    MIB,
    NAME_BYTES,
    TIGHT,
    TOPIC,
    TOPICS,
    Stage,
    direct_taken,
    jammed,
    namespace,
    queued_for_heap,
    staged,
    waiting_for_direct,
)
from tests.support.proxies.shared_lists import has_list
from tests.support.web.web_pages import scrape

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
HEAP_TIMEOUT = "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis"
DIRECT_TIMEOUT = "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis"
NEARLY_A_MIB = GeneratedTopics(20, 10_270, NAME_BYTES)  # its cost as a list is just above 1 MiB


def refused(error: pb.CommandError, text: str) -> None:
    assert (error.error, error.message) == (ServerError.TooManyRequests, text)


# --- waiting to grow ------------------------------------------------------------------------------


async def test_everybody_in_a_jam_is_answered_once_the_reader_reads() -> None:
    async with staged(**TIGHT) as stage:
        jam = await jammed(stage)
        last = await queued_for_heap(stage)
        for client in (jam.a, jam.b, jam.c, jam.d, last):
            await has_list(client)
        await stage.until(lambda: not stage.heap.held + stage.direct.held, "all given back")
        assert stage.heap.statistics().peak_held <= MIB + heap_size(LIST_BYTES)
        assert stage.direct.statistics().peak_held <= MIB
        assert stage.outcome("answered") == 5


async def test_a_growth_that_times_out_is_refused_and_its_connection_goes_on() -> None:
    # Seen to wait before it gives up.
    async with staged(**TIGHT | {HEAP_TIMEOUT: patient_millis(1000)}) as stage:
        jam = await jammed(stage)
        refused((await jam.d.answer()).error, HEAP_REFUSAL)
        assert stage.proxy.broker_side.pool.states()["paused"] == 0
        assert stage.outcome("refused_heap") == 1
        assert stage.heap.statistics().timed_out == 1
        for client in (jam.a, jam.b, jam.c):
            await has_list(client)
        connections = stage.broker.record.connections_accepted
        jam.d.next_id()
        assert len((await jam.d.topics(namespace(3))).topics) == TOPICS
        assert stage.broker.record.connections_accepted == connections


async def test_a_brokers_answer_behind_a_paused_one_is_not_lost() -> None:
    async with staged(**TIGHT) as stage:
        stage.change_pool(per_key=1)
        a = await direct_taken(stage)
        b = await waiting_for_direct(stage)
        gate = stage.broker.script.hold(LISTS)
        behind = [await stage.connected() for _ in range(3)]
        for number, client in enumerate(behind):
            await client.ask_topics(namespace(2 + number))
        await stage.until(lambda: stage.outstanding == 3, "three questions on one connection")
        gate.set()
        await stage.until(lambda: stage.proxy.broker_side.pool.states()["paused"] == 1, "a pause")
        for client in (a, b):
            await has_list(client)
        for client in behind:
            await has_list(client)


async def test_chained_pauses_end_after_twice_the_acquire_timeout() -> None:
    seconds = patient(0.5)
    async with staged(**TIGHT | {HEAP_TIMEOUT: round(1000 * seconds)}) as stage:
        stage.change_pool(per_key=1)
        await direct_taken(stage)
        await waiting_for_direct(stage)
        gate = stage.broker.script.hold(LISTS)
        behind, record = [], stage.broker.record
        for number in range(2, 8):
            behind.append(await stage.connected())
            await behind[-1].ask_topics(namespace(number))
            # The first is answered first, and overshoots: one that came as the gate opens would be before it.
            await stage.until(lambda: record.outstanding_topic_questions == len(behind), "a question at the broker")
        began = stage.proxy.loop.time()
        gate.set()
        for client in behind[1:]:
            refused((await client.answer()).error, HEAP_REFUSAL)
        # One of the six overshoots; the others one after the other would have waited five times.
        assert stage.proxy.loop.time() - began < seconds * 5
        assert stage.outcome("refused_heap") == 5


# --- refusals -------------------------------------------------------------------------------------


async def test_an_answer_that_gets_no_direct_memory_in_time_is_refused() -> None:
    async with staged(**TIGHT) as stage:
        reader = await direct_taken(stage)
        client = await stage.connected()
        with stage.changed(**{DIRECT_TIMEOUT: 150}):
            refused(await client.refused_topics(namespace(1)), DIRECT_REFUSAL)
        assert stage.outcome("refused_direct") == 1
        assert stage.heap.held == 0
        await has_list(reader)
        assert len((await client.topics(namespace(1))).topics) == TOPICS


async def test_the_requests_clock_ends_a_wait_behind_the_clients_own_unread_answer() -> None:
    async with staged(**TIGHT) as stage:
        reader = await direct_taken(stage)
        # Long enough for the broker's answer: then it is the client that the list waits for.
        stage.change(topicListRequestTimeoutMillis=patient_millis(1000))
        await reader.ask_topics(namespace(1))
        await stage.until(lambda: stage.outcome("timed_out") == 1, "a request that gave up")
        await stage.until(lambda: not stage.heap.held, "its memory, a turn of the loop later")
        await has_list(reader)
        refused((await reader.answer()).error, "Failed because earlier answers to this client were not read in time")


async def test_too_many_requests_in_work_are_refused_by_the_lookup_limit() -> None:
    async with staged(maxConcurrentLookupRequests=2) as stage:
        gate = stage.broker.script.hold(LISTS)
        busy = await stage.connected()
        for number in range(2):
            await busy.ask_topics(namespace(number))
        await stage.until(lambda: stage.lookups.held == 2, "two in work")
        client = await stage.connected()
        text = "too many concurrent lookup requests (maxConcurrentLookupRequests)"
        refused(await client.refused_topics(namespace(2)), text)
        answer = await client.lookup(TOPIC)
        assert (answer.error, answer.message) == (ServerError.TooManyRequests, text)
        await client.send(new_schema_frame(9, TOPIC, 10))
        refused(await client.error(9), text)
        assert counted(stage.proxy.counters, "rejected_get_topics_of_namespace_requests") == 1
        assert counted(stage.proxy.counters, "rejected_lookup_requests") == 1
        known = stage.proxy.reports.refusals.recent
        assert [refusal.subject for refusal in known] == [namespace(2), TOPIC, TOPIC]
        assert {(refusal.change, refusal.asked, refusal.limit) for refusal in known} == {
            ("maxConcurrentLookupRequests", 3, 2)
        }
        gate.set()
        for _ in range(2):
            await has_list(busy, request_id=None)
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


@pytest.mark.threat("lookups-wait-for-ever")
async def test_requests_whose_time_is_over_in_line_are_refused_and_no_broker_is_asked() -> None:
    crowd, asked, millis = 10, 100, 100
    async with staged(topicListRequestTimeoutMillis=millis, maxConcurrentLookupRequests=crowd * asked) as stage:
        clients = [await stage.connected() for _ in range(crowd)]
        # Time stands still for the budget: an iteration serves a few, on a fast machine, too, and the rest is in line.
        stage.proxy.core.loop_budget.now = float
        for client in clients:
            client.flood(b"".join(lookup_frame(number, TOPIC) for number in range(asked)))
        for client in clients:
            client.deliver()
        await stage.until(lambda: len(stage.proxy.core.loop_budget) >= crowd // 2, "clients in line")
        # Nothing is served meanwhile, so that the time of all in line is over.
        sleep(2 * millis / 1000)  # noqa: ASYNC251
        late = 0
        for client in clients:
            answers = [(await client.answer()).lookupTopicResponse for _ in range(asked)]
            late += sum(answer.message == WAITED_TOO_LONG for answer in answers)
        assert late > 0
        assert late == (await scrape(stage.proxy.web_port))("refused_requests_total", reason="too_late")
        assert stage.broker.record.received[CommandType.LOOKUP] <= crowd * asked - late


# --- bounds per connection and per broker ---------------------------------------------------------


async def test_only_a_few_lists_of_one_connection_hold_memory_at_once() -> None:
    async with staged(clientSocketSendBufferBytes=0) as stage:
        gate = stage.broker.script.hold(LISTS)
        client = await stage.connected()
        for number in range(10):
            await client.ask_topics(namespace(number))
        await client.ping()
        await stage.until(lambda: stage.broker.record.topic_questions == LISTS_AT_ONCE, "a few questions")
        places = stage.proxy.services.requests.lookups.list_places
        assert (stage.lookups.held, places.waiting) == (LISTS_AT_ONCE, 10 - LISTS_AT_ONCE)
        await client.ping()
        assert stage.broker.record.topic_questions == LISTS_AT_ONCE <= 4
        gate.set()
        for _ in range(10):
            await has_list(client, request_id=None)


async def test_a_broker_has_at_most_so_many_questions_at_once() -> None:
    async with staged(topicListMaxOutstandingPerBroker=3) as stage:
        gate = stage.broker.script.hold(LISTS)
        clients = [await stage.connected() for _ in range(12)]
        for number, client in enumerate(clients):
            await client.ask_topics(namespace(number))
        await stage.until(lambda: stage.books()["questions to ..."] == 12, "three asked, nine waiting")
        await stage.until(lambda: stage.broker.record.outstanding_topic_questions == 3, "three at the broker")
        gate.set()
        for client in clients:
            await has_list(client)
        assert stage.broker.record.max_outstanding_topic_questions == 3


async def test_a_client_with_too_many_requests_in_work_is_not_read() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        client = await stage.connected()
        most = stage.proxy.services.limits.max_outstanding
        looked_up = most + 20
        for _ in range(looked_up):
            await client.send_command(
                pb.BaseCommand(
                    type=pb.BaseCommand.LOOKUP,
                    lookupTopic=pb.CommandLookupTopic(request_id=client.next_id(), topic=TOPIC),
                )
            )
        await stage.broker.record.seen(CommandType.LOOKUP, most)
        await stage.until(lambda: not stage.session_of(client).reading, "a client that is not read")
        assert stage.lookups.held == most
        assert stage.broker.record.received[CommandType.LOOKUP] == most
        gate.set()
        answered = {(await client.answer()).lookupTopicResponse.request_id for _ in range(looked_up)}
        assert answered == set(range(1, looked_up + 1))


# --- no deadlock ----------------------------------------------------------------------------------


async def test_lists_that_all_outgrow_their_estimates_do_not_wait_for_each_other() -> None:
    async with staged(NEARLY_A_MIB, **TIGHT) as stage:
        gate = stage.broker.script.hold(LISTS)
        clients = [await stage.connected() for _ in range(20)]
        for number, client in enumerate(clients):
            await client.ask_topics(namespace(number))
        await stage.until(lambda: stage.outstanding == 20, "twenty estimates held")
        gate.set()
        await asyncio.gather(*(has_list(client, 10_270) for client in clients))
        assert stage.outcome("answered") == 20
        assert stage.heap.statistics().peak_held <= 2 * MIB + 20 * heap_size(1024)


# --- schemas --------------------------------------------------------------------------------------


async def create_schema(stage: Stage, data_bytes: int) -> None:
    client = await stage.connected()
    await client.send(new_schema_frame(1, TOPIC, data_bytes))
    assert (await client.answer()).type == pb.BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE


async def test_a_schema_waits_for_direct_memory_and_is_refused_in_its_name() -> None:
    async with staged(**TIGHT) as stage:
        await create_schema(stage, 340_000)
        reader = await direct_taken(stage)
        client = await stage.connected()
        with stage.changed(**{DIRECT_TIMEOUT: 200}):
            await client.send(schema_frame(2, TOPIC))
            refused(await client.error(2), DIRECT_REFUSAL)
        await has_list(reader)
        await client.send(schema_frame(3, TOPIC))
        schema = (await client.answer()).getSchemaResponse
        assert (schema.request_id, len(schema.schema.schema_data)) == (3, 340_000)


# --- the average list -----------------------------------------------------------------------------


async def average_list(stage: Stage, number: int) -> int:
    """Return what a list of unknown size counts as, by a question for this namespace that nobody has asked before."""
    gate = stage.broker.script.hold(LISTS)
    client = await stage.connected()
    await client.ask_topics(f"demo/ns-{number}")
    await stage.until(lambda: stage.outstanding == 1, "the question")
    found = stage.books()["questions of unproven readers to ..."]
    gate.set()
    await client.answer()
    return found


@pytest.mark.threat("tiny-namespace-lists")
async def test_lists_of_tiny_namespaces_do_not_make_the_average_smaller() -> None:
    async with staged(GeneratedTopics(100, 1, 100), topicListUnprovenReadersMemoryPercent=50) as stage:
        client = await stage.connected()
        for number in range(10, 99):
            await client.topics(f"demo/ns-{number}")
        assert await average_list(stage, 99) == FIRST_AVERAGE_BYTES


@pytest.mark.threat("tiny-namespace-lists")
@pytest.mark.parametrize(("times", "pattern"), [(1, None), (10, None), (1, ".*"), (10, ".*")])
async def test_an_average_is_moved_once_by_a_list_and_never_to_less_by_a_pattern(
    times: int, pattern: str | None
) -> None:
    async with staged(topicListUnprovenReadersMemoryPercent=50) as stage:
        client = await stage.connected()
        for number in range(times):
            asked = pb.CommandGetTopicsOfNamespace(
                request_id=number + 1, namespace=namespace(10), topics_pattern=pattern
            )
            command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)
            await client.send(frame(command))
            await has_list(client, request_id=None)
        size = LIST_BYTES + FLAGS_BYTES
        less = 0 if pattern else int((size / FIRST_AVERAGE_BYTES) ** 2 * (FIRST_AVERAGE_BYTES - size) / 8)
        assert await average_list(stage, 11) == FIRST_AVERAGE_BYTES - less
