"""What the topic-list path notes and gives back: use by name, refusals, known sizes, and memory after a failure."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import DIRECT_REFUSAL, HEAP_REFUSAL
from proxy.requests.topic_lists.bodies import PAGED_FROM_BYTES, PagedBody
from proxy.requests.topic_lists.service import ListRequest
from proxy.telemetry.usage import Usage
from tests.support.clients.list_clients import ListClient
from tests.support.proxies.counted import counted
from tests.support.proxies.list_stage import KIB, ListStage, Sizes

LIST_BYTES = 20 * KIB


@pytest.fixture
def stage() -> Iterator[ListStage]:
    with closing(ListStage()) as on:
        yield on


def asked_by(stage: ListStage, count: int, room: int = 1 << 40) -> list[ListClient]:
    """Have that many clients of alice ask for the same list: one group, whose question is at the broker."""
    clients = [stage.client("alice", room=room) for _ in range(count)]
    for client in clients:
        stage.ask(client)
    stage.step()
    assert len(stage.asked()) == 1
    return clients


def answer(stage: ListStage, size: int = LIST_BYTES) -> None:
    (asked,) = stage.asked()
    stage.call(asked.broker.begin, asked, size)
    stage.call(asked.broker.go_on, asked, 1 << 20)
    stage.step()


def answer_unchanged(stage: ListStage) -> None:
    """Say that the list is still the one whose hash the client sent."""
    (asked,) = stage.asked()
    response = pb.CommandGetTopicsOfNamespaceResponse(request_id=asked.request.request_id, changed=False)
    asked.broker.questions.remove(asked)
    kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    stage.call(asked.broker.feed, commands.frame(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=response)))
    stage.step()


def list_size(client: ListClient) -> int:
    """Count the bytes of the list that a client got, in whose answer only the request id is left out."""
    (command,) = client.commands()
    response = command.getTopicsOfNamespaceResponse
    return response.ByteSize() - type(response)(request_id=response.request_id).ByteSize()


def used(stage: ListStage) -> tuple[Usage, Usage]:
    """Give what the namespace, and what alice, used: the only ones there are."""
    top = stage.usage.top(9)
    (namespace,), (principal,) = top.namespaces, top.principals
    assert (namespace.name, principal.name) == ("t/n", "alice")
    return namespace, principal


def taken(semaphore: AsyncSemaphore, size: int) -> Permit:
    held = semaphore.try_acquire(size)
    assert held is not None
    return held


# --- use by name ----------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 3])
def test_heap_memory_counts_once_for_a_group_while_it_is_held(stage: ListStage, members: int) -> None:
    asked_by(stage, members)
    stage.advance(2)
    answer(stage)
    grown = stage.limiter.heap.statistics().peak_held
    for name in used(stage):
        assert name.byte_seconds == pytest.approx(2 * grown)


@pytest.mark.parametrize("members", [1, 3])
def test_direct_memory_counts_once_for_a_group_until_its_last_client_has_read(stage: ListStage, members: int) -> None:
    clients = asked_by(stage, members, room=100)
    answer(stage)
    size = stage.limiter.direct.held
    assert size > LIST_BYTES
    stage.advance(3)
    assert stage.usage.top(9).namespaces == [], "nothing has ended"
    for client in clients:
        stage.call(client.read)
        stage.step()
    for name in used(stage):
        assert name.byte_seconds == pytest.approx(3 * size)


@pytest.mark.parametrize("members", [1, 3])
def test_bytes_sent_count_for_each_client_that_got_the_list(stage: ListStage, members: int) -> None:
    clients = asked_by(stage, members)
    answer(stage)
    for name in used(stage):
        assert (name.sent_bytes, name.refused) == (members * list_size(clients[0]), 0)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize(("memory", "text"), [("direct", DIRECT_REFUSAL), ("heap", HEAP_REFUSAL)])
def test_a_list_refused_memory_names_its_limiter_and_counts_for_each_client(
    stage: ListStage, members: int, memory: str, text: str
) -> None:
    semaphore = getattr(stage.limiter, memory)
    with taken(semaphore, semaphore.limit):
        clients = [stage.client("alice") for _ in range(members)]
        for client in clients:
            stage.ask(client)
        stage.step()
        if stage.asked():
            answer(stage)
        stage.advance(11)
    assert [client.commands()[0].error.message for client in clients] == [text] * members
    refusals = [(refusal.limiter, refusal.held) for refusal in stage.refusals.recent]
    assert refusals == [(memory, semaphore.limit)] * members
    for name in used(stage):
        assert (name.sent_bytes, name.refused) == (0, members)


# --- time -----------------------------------------------------------------------------------------


def test_a_request_whose_time_is_over_when_its_turn_comes_is_not_asked_for(stage: ListStage) -> None:
    asked_by(stage, 1)
    answer(stage)
    client = stage.client()
    request = pb.CommandGetTopicsOfNamespace(request_id=7, namespace="t/late")
    arrived = stage.loop.time() - stage.queues.limits.request_timeout_seconds
    stage.run(stage.service.serve(ListRequest(client, request, arrived)))
    stage.step()
    (refusal,) = client.commands()
    assert (refusal.error.request_id, refusal.error.error) == (7, ServerError.TooManyRequests)
    assert "were not read in time" in refusal.error.message
    assert (stage.asked(), counted(stage.counters, "lists_questions")) == ([], 1)
    assert counted(stage.counters, "lists_answers", "timed_out") == 1


def test_whoever_joins_a_group_that_waits_for_heap_memory_waits_the_whole_timeout(stage: ListStage) -> None:
    heap = stage.limiter.heap
    with taken(heap, heap.limit):
        early, late = stage.client(), stage.client()
        stage.ask(early)
        stage.step()
        stage.advance(8)
        stage.ask(late)
        stage.step()
        assert heap.queue_size == 1, "one place for both"
        stage.advance(9)
        assert late.commands() == []
    stage.step()
    answer(stage)
    for client in (early, late):
        assert client.commands()[0].type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


# --- memory ---------------------------------------------------------------------------------------


def test_a_list_that_cannot_be_encoded_is_an_error_for_each_client_and_gives_everything_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_space(body: PagedBody, piece: memoryview) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(PagedBody, "append", no_space)
    with closing(ListStage(Sizes(heap=1024 * KIB, direct=1024 * KIB))) as stage:
        stage.call(stage.queues.apply, replace(stage.queues.limits, max_answer_bytes=512 * KIB))
        clients = asked_by(stage, 3)
        before = os.listdir("/proc/self/fd")
        answer(stage, 2 * PAGED_FROM_BYTES)
        codes = [[command.error.error for command in client.commands()] for client in clients]
        assert codes == [[ServerError.UnknownError]] * 3
        assert stage.limiter.direct.statistics().peak_held > 2 * PAGED_FROM_BYTES
        assert not any(stage.books().values()), stage.books()
        assert len(os.listdir("/proc/self/fd")) == len(before)
        assert {type(report) for report in stage.reports} == {OSError}


def test_a_list_that_has_not_changed_leaves_the_known_size_as_it_was(stage: ListStage) -> None:
    asked_by(stage, 1)
    answer(stage)
    asked_by(stage, 1)
    known = stage.limiter.heap.held
    assert known > LIST_BYTES
    answer_unchanged(stage)
    asked_by(stage, 1)
    assert stage.limiter.heap.held == known
