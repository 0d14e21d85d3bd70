"""What counts for the objective (topic lists that begin within a second), and what does not."""

import asyncio

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from proxy.requests.topic_lists import service
from tests.support.brokers.embedded.script import Failure
from tests.support.patience import PATIENCE_SECONDS, in_time, patient
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import Stage, direct_taken, namespace, staged, waiting_for_direct

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


def due_and_prompt(stage: Stage) -> tuple[float, float]:
    """Give the lists that were due, and those of them that were prompt."""
    counters = stage.proxy.counters
    return counted(counters, "lists_due"), counted(counters, "lists_prompt")


async def test_a_list_that_begins_within_a_second_is_prompt_and_a_later_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine may stand for a second (the second itself: unit/proxy/requests/test_topic_lists.py).
    monkeypatch.setattr(service, "PROMPT_SECONDS", patient(PATIENCE_SECONDS))
    async with staged() as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        assert due_and_prompt(stage) == (1, 1)
        # Nothing begins before it is asked for.
        monkeypatch.setattr(service, "PROMPT_SECONDS", -1.0)
        await client.topics(namespace(1))
        assert due_and_prompt(stage) == (2, 1)


async def test_what_counts_is_the_first_byte_not_how_fast_a_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        reader = await direct_taken(stage)
        size = await reader.receive(4)
        # The list has begun in this time, and the client has read next to nothing.
        prompt = loop.time() - asked
        monkeypatch.setattr(service, "PROMPT_SECONDS", prompt)
        await stage.until(lambda: loop.time() - asked > prompt + 0.05, "more time")
        await reader.receive(int.from_bytes(size, "big"))
        await stage.until(lambda: due_and_prompt(stage) == (1, 1), "a prompt list")


async def test_a_list_without_memory_is_due_and_not_prompt() -> None:
    async with staged(
        maxTopicListInFlightDirectMemSizeMB=1, maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize=1
    ) as stage:
        reader = await direct_taken(stage)
        waiting = await waiting_for_direct(stage)
        refused = await (await stage.connected()).refused_topics(namespace(2))
        assert refused.error == ServerError.TooManyRequests
        assert due_and_prompt(stage) == (1, 0)
        for client in (reader, waiting):
            await client.answer()
        await stage.until(lambda: due_and_prompt(stage)[0] == 3, "all three")


@pytest.mark.parametrize(
    ("code", "due"),
    [
        (ServerError.AuthorizationError, 0), (ServerError.TopicNotFound, 0), (ServerError.ServiceNotReady, 1),
        (ServerError.MetadataError, 1),
    ],
)  # fmt: skip
async def test_an_error_of_the_broker_counts_unless_it_is_about_the_request(code: ServerError, due: int) -> None:
    async with staged() as stage:
        stage.broker.script.failures[LISTS] = Failure(code, "no")
        client = await stage.connected()
        assert (await client.refused_topics(namespace(0))).error == code
        assert due_and_prompt(stage) == (due, 0)


async def test_a_broker_that_refuses_the_proxy_itself_counts() -> None:
    async with staged() as stage:
        stage.broker.script.refuse_connect = Failure(ServerError.AuthenticationError, "no such proxy")
        client = await stage.connected()
        await client.refused_topics(namespace(0))
        assert due_and_prompt(stage) == (1, 0)


async def test_a_client_that_leaves_does_not_count() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(LISTS)
        client = await stage.connected()
        await client.ask_topics(namespace(0))
        async with in_time():
            await stage.broker.record.seen(LISTS)
        client.close()
        await stage.until(lambda: stage.outcome("cancelled") == 1, "the end of the request")
        assert due_and_prompt(stage) == (0, 0)
        gate.set()
