"""The weak points of upstream's topic-list limits (PIP-442 as it is built there), each shown not to be ours.

The sixth, watch traffic, is in test_watch_limits.py.
"""

from pathlib import Path

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.core.errors import HEAP_REFUSAL
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.brokers.raw_broker import Serve, handshake, raw_broker, request
from tests.support.clients.async_client import AsyncClient
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    NAME_BYTES,
    TIGHT,
    TOPIC,
    Stage,
    jammed,
    namespace,
    queued_for_heap,
    staged,
)
from tests.support.proxies.shared_lists import has_list
from tests.support.web.web_pages import scrape

HEAP_QUEUE = "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize"
GREEDY = 200
# Above upstream's frame limit of 5 MiB and 10 KiB.
OF_8_MB = GeneratedTopics(20, 16_000, 510)


async def test_upstream_weak_point_1_the_estimates_permit_is_held_while_its_growth_is_queued() -> None:
    """Upstream releases the first permit while the update still waits: the books show less than what is held."""
    async with staged(**TIGHT) as stage:
        jam = await jammed(stage)
        assert stage.heap.growers_waiting == 1
        assert stage.heap.held >= 2 * LIST_BYTES + 1024 + ANSWER_OVERHEAD_BYTES
        for client in (jam.a, jam.b, jam.c, jam.d):
            await has_list(client)


async def test_upstream_weak_point_2_an_answer_is_not_read_before_its_memory_is_there() -> None:
    """Upstream's update comes after the answer was read and decoded: the memory is spent, whatever the permit says."""
    async with staged(**TIGHT) as stage:
        await jammed(stage)
        assert stage.proxy.broker_side.pool.states()["paused"] == 1
        assert (await (await stage.connected()).lookup(TOPIC)).brokerServiceUrl == stage.broker.service_url
        # The rest waits in the kernel, or at the broker.
        await stage.until(lambda: unread_from_the_broker(stage) > 0, "bytes that nobody reads")
        assert stage.heap.held < 3 * LIST_BYTES


def unread_from_the_broker(stage: Stage) -> int:
    """Count the bytes of the broker that the kernel has for the proxy."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    of_broker = [queues for _, _, remote, _, queues, *_ in rows if remote.endswith(f":{stage.broker.port:04X}")]
    return sum(int(queues.partition(":")[2], 16) for queues in of_broker)


async def test_upstream_weak_point_3_a_list_larger_than_the_whole_limit_gets_an_answer_every_time() -> None:
    """Upstream answers such a request once, with an error; when the size is known it never answers again."""
    async with staged(GeneratedTopics(20, 12_000, NAME_BYTES), **TIGHT) as stage:
        client = await stage.connected()
        for _ in range(3):
            error = await client.refused_topics(namespace(0))
            assert error.error == ServerError.NotAllowedError
            assert "topicListMaxAnswerBytes" in error.message
        assert stage.lookups.held == 0


async def test_upstream_weak_point_3_an_estimate_larger_than_the_whole_limit_passes_alone() -> None:
    """The same with a list that just fits: its cost as an estimate is above the limit."""
    async with staged(GeneratedTopics(20, 10_270, NAME_BYTES), **TIGHT) as stage:
        client = await stage.connected()
        for _ in range(3):
            assert len((await client.topics(namespace(0))).topics) == 10_270


async def test_upstream_weak_point_4_a_dead_clients_request_leaves_the_queue_at_once_and_not_at_its_timeout() -> None:
    """Upstream asks now and then whether the client is gone: its places stay taken for up to 25 s."""
    async with staged(**TIGHT) as stage:
        await jammed(stage)
        leaving = [await queued_for_heap(stage, number) for number in range(4, 10)]
        for client in leaving:
            client.reset()
        sessions = len(stage.proxy.sessions)
        await stage.until(lambda: len(stage.proxy.sessions) == sessions - len(leaving), "the end of the sessions")
        await stage.until(lambda: not stage.heap.queue_size, "an empty queue")
        assert stage.heap.statistics().timed_out == 0
        assert stage.heap.statistics().cancelled == len(leaving)


async def test_upstream_weak_point_5_a_list_beyond_5_mib_neither_ends_the_broker_connection_nor_goes_unanswered() -> (
    None
):
    """Upstream's frame decoder gives up on it and closes the broker connection, with everybody's questions on it."""

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            asked = (await request(peer)).getTopicsOfNamespace
            topics = [f"persistent://{asked.namespace}/{number:0500}" for number in range(16_000)]
            answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=asked.request_id, topics=topics)
            kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
            await peer.send_command(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=answer))

    async with raw_broker(serve) as broker, staged(broker_port=broker.port) as stage:
        client = await stage.connected()
        error = await client.refused_topics("t/n")
        assert error.error == ServerError.NotAllowedError
        for text in ("16000 topics", "pattern", "maxMessageSize"):
            assert text in error.message
        await client.ping()
        await client.refused_topics("t/n")
        assert len(broker.peers) == 1
        assert stage.caused("frame_too_large") == 0


async def test_upstream_weak_point_5_a_list_beyond_5_mib_reaches_a_client_that_takes_it() -> None:
    """The same with a client whose frame limit was raised."""
    async with staged(OF_8_MB, maxMessageSize=20 * MIB) as stage:
        client = await stage.connected()
        assert len((await client.topics(namespace(0))).topics) == 16_000


def asked_in_order(asked: list[str]) -> Serve:
    """Have a broker that notes for which namespaces it is asked, and gives each one topic."""

    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            question = (await request(peer)).getTopicsOfNamespace
            asked.append(question.namespace)
            topics = [f"persistent://{question.namespace}/topic"]
            answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=question.request_id, topics=topics)
            kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
            await peer.send_command(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=answer))

    return serve


async def asked_before_the_modest(fairness: str) -> int:
    """Give how many of a tenant's 200 waiting requests are served before another's only one, which came last."""
    asked: list[str] = []
    async with (
        raw_broker(asked_in_order(asked)) as broker,
        staged(broker_port=broker.port, **TIGHT, topicListFairness=fairness) as stage,
    ):
        taken = stage.heap.try_acquire(stage.heap.limit)
        assert taken is not None
        greedy = [await stage.connected() for _ in range(GREEDY // 2)]
        for number, client in enumerate(greedy):
            await client.ask_topics(f"greedy/{number}")
            await client.ask_topics(f"greedy/{number}-too")
        await stage.until(lambda: waiting(stage) == GREEDY, "the greedy tenant's queue")
        modest = await stage.connected()
        await modest.ask_topics("modest/n")
        await stage.until(lambda: waiting(stage) == GREEDY + 1, "one request behind it")
        # Room for one at a time.
        taken.try_update(stage.heap.limit - 1024 - ANSWER_OVERHEAD_BYTES)
        await has_list(modest, 1)
        for client in greedy:
            for _ in range(2):
                await has_list(client, 1, request_id=None)
        taken.release()
    return asked.index("modest/n")


def waiting(stage: Stage) -> int:
    """Count the lists that wait for memory, or for the right to wait for it."""
    return stage.proxy.memory.statistics().heap.queue_size


@pytest.mark.threat("greedy-tenant")
@pytest.mark.parametrize(("fairness", "at_most"), [("tenant", GREEDY // 10), ("fifo", GREEDY)])
async def test_upstream_weak_point_7_a_tenants_queue_holds_up_no_other_tenant(fairness: str, at_most: int) -> None:
    """Upstream has one line for all: whoever asks most is served most, and the others after it."""
    before = await asked_before_the_modest(fairness)
    assert before <= at_most
    # One line, which is still the default: last come, last served.
    assert fairness == "tenant" or before == GREEDY


async def test_upstream_weak_point_8_a_request_that_finds_the_queue_full_is_counted_and_told() -> None:
    """Upstream has no counter for it: an operator sees nothing while clients fail."""
    async with staged(**TIGHT | {HEAP_QUEUE: 1}) as stage:
        await jammed(stage)
        await queued_for_heap(stage)
        before = (await scrape(stage.proxy.web_port))("lists_queue_full_total", limiter="heap")
        client = await stage.connected()
        error = await client.refused_topics(namespace(5))
        assert (error.error, error.message) == (ServerError.TooManyRequests, HEAP_REFUSAL)
        after = await scrape(stage.proxy.web_port)
        assert (before, after("lists_queue_full_total", limiter="heap")) == (0, 1)
        assert after("lists_answers_total", outcome="refused_heap") == 1
