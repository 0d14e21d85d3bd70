"""The topic-list path in virtual time: whose clock ends what, who is charged, and how soon a place is free."""

from collections.abc import Hashable, Iterator
from contextlib import closing

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import HEAP_REFUSAL
from proxy.core.tasks import STEP_SECONDS
from proxy.requests.topic_lists.service import A_BURST, ListRequest
from proxy.requests.topic_lists.unproven import UnprovenReaders
from tests.support.clients.list_clients import ListClient
from tests.support.proxies.counted import counted
from tests.support.proxies.list_stage import KIB, Asked, ListStage, Sizes


@pytest.fixture
def stage() -> Iterator[ListStage]:
    with closing(ListStage()) as on:
        yield on


def answer(stage: ListStage, asked: Asked, size: int = 10) -> None:
    stage.call(asked.broker.begin, asked, size)
    stage.call(asked.broker.go_on, asked, 1 << 20)
    stage.step()


def warm(stage: ListStage) -> None:
    """Have a connection to the broker."""
    stage.ask(stage.client(), "t/warm")
    stage.step()
    answer(stage, stage.asked()[0])


def group_behind_a_question(stage: ListStage, members: int) -> tuple[Asked, list[ListClient]]:
    """Have a question at the broker, and a group that waits for its answer."""
    warm(stage)
    stage.ask(stage.client())
    stage.step()
    clients = [stage.client() for _ in range(members)]
    for client in clients:
        stage.ask(client)
    stage.step()
    (asked,) = stage.asked()
    return asked, clients


def errors(client: ListClient) -> list[tuple[int, str]]:
    return [(command.error.error, command.error.message) for command in client.commands()]


def test_members_of_a_group_time_out_each_at_its_own_time(stage: ListStage) -> None:
    warm(stage)
    stage.ask(stage.client())
    stage.step()
    stage.advance(5)
    early, late = stage.client(), stage.client()
    stage.ask(early)
    stage.advance(10)
    stage.ask(late)
    stage.step()
    (group,) = stage.live_groups()[1:]
    assert len(group.members) == 2
    # The question before it has been given up at 20 s; its successor's is on the wire.
    stage.advance(5 + STEP_SECONDS)
    assert (early.commands(), len(stage.asked())) == ([], 2)
    stage.advance(5)
    assert errors(early) == [(ServerError.TooManyRequests, "Failed because the broker did not answer in time")]
    assert late.commands() == []
    answer(stage, stage.asked()[1])
    assert late.commands()[0].type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE


def test_a_list_that_begins_within_a_second_is_prompt_and_a_later_one_is_not(stage: ListStage) -> None:
    warm(stage)
    for seconds in (0.9, 1.1):
        stage.ask(stage.client())
        stage.step()
        stage.advance(seconds)
        answer(stage, stage.asked()[0])
    counters = stage.counters
    assert (counted(counters, "lists_due"), counted(counters, "lists_prompt")) == (3, 2)


def charged(semaphore: AsyncSemaphore) -> list[Hashable]:
    return [key for key, _ in semaphore.top_holders(9)]


@pytest.mark.parametrize("share_by_key", [False, True])
def test_a_wait_goes_on_when_its_payer_leaves_and_what_comes_after_is_charged_to_one_that_is_there(
    share_by_key: bool,
) -> None:
    with closing(ListStage(Sizes(heap=32 * KIB, share_by_key=share_by_key))) as stage:
        held = stage.limiter.heap.try_acquire(32 * KIB, key="another")
        assert held is not None
        clients = [stage.client() for _ in range(2)]
        for client in clients:
            stage.ask(client)
        stage.step()
        assert stage.limiter.heap.queue_size == 1
        stage.call(clients[0].leave)
        stage.step()
        assert (charged(stage.limiter.heap), stage.limiter.heap.queue_size) == (["another"], 1)
        held.release()
        stage.step()
        assert charged(stage.limiter.heap) == [clients[0].name]
        clients[1].socket.room = 100
        answer(stage, stage.asked()[0], 20 * KIB)
        assert charged(stage.limiter.direct) == [clients[1].name]


def test_a_list_on_its_way_stays_charged_to_one_that_has_left_and_ends_with_the_last_member(stage: ListStage) -> None:
    first, _ = group_behind_a_question(stage, 0)
    clients = [stage.client(room=100) for _ in range(3)]
    for client in clients:
        stage.ask(client)
    stage.step()
    answer(stage, first)
    answer(stage, stage.asked()[0], 20 * KIB)
    held = stage.limiter.direct.held
    for client in clients:
        assert stage.limiter.direct.top_holders(9) == [(clients[0].name, held)]
        stage.call(client.leave)
        stage.step()
    assert stage.limiter.direct.top_holders(9) == []


@pytest.fixture
def joined_wait() -> Iterator[tuple[ListStage, Permit, list[ListClient]]]:
    """Have two wait for heap memory in one group, the second for 4 s less."""
    with closing(ListStage(Sizes(heap=32 * KIB))) as stage:
        held = stage.limiter.heap.try_acquire(32 * KIB, key="another")
        assert held is not None
        clients = [stage.client() for _ in range(2)]
        for client in clients:
            stage.advance(4)
            stage.ask(client)
            stage.step()
        yield stage, held, clients


def test_a_wait_for_memory_ends_with_the_time_of_the_last_to_join(
    joined_wait: tuple[ListStage, Permit, list[ListClient]],
) -> None:
    stage, _, clients = joined_wait
    stage.advance(9.9)
    assert ([errors(client) for client in clients], stage.limiter.heap.queue_size) == ([[], []], 1)
    stage.advance(0.1)
    refusal = [(ServerError.TooManyRequests, HEAP_REFUSAL)]
    assert ([errors(client) for client in clients], stage.limiter.heap.queue_size) == ([refusal, refusal], 0)


def test_a_wait_that_goes_on_for_others_is_charged_to_one_of_them(
    joined_wait: tuple[ListStage, Permit, list[ListClient]],
) -> None:
    stage, held, (early, late) = joined_wait
    stage.call(early.leave)
    stage.advance(7)
    held.release()
    stage.step()
    assert charged(stage.limiter.heap) == [late.name]


@pytest.mark.parametrize("short_by", [0, 1])
def test_a_list_as_large_as_the_clients_frame_limit_fits(stage: ListStage, short_by: int) -> None:
    warm(stage)
    measuring = stage.client()
    stage.ask(measuring)
    stage.step()
    answer(stage, stage.asked()[0], 5 * KIB)
    frame_bytes = len(measuring.socket.peer_bytes) - 4
    client = stage.client(max_frame_bytes=frame_bytes + 4 - short_by)
    stage.ask(client)
    stage.step()
    answer(stage, stage.asked()[0], 5 * KIB)
    (command,) = client.commands()
    assert (command.type == pb.BaseCommand.ERROR) == bool(short_by)
    assert not any(stage.books().values())


@pytest.mark.parametrize("logged", [True, False])
def test_a_client_that_cannot_take_the_list_hears_how_many_topics_it_has(stage: ListStage, logged: bool) -> None:
    before, _ = group_behind_a_question(stage, 0)
    small, large = stage.client(max_frame_bytes=4 * KIB), stage.client()
    for client in (small, large):
        stage.ask(client, logged=logged)
    stage.step()
    answer(stage, before)
    answer(stage, stage.asked()[0], 5 * KIB)
    ((_, message),) = errors(small)
    assert message.startswith("topic list of 2 topics needs a frame of")
    (command,) = large.commands()
    assert len(command.getTopicsOfNamespaceResponse.topics) == 2
    assert not any(stage.books().values())


def test_who_waits_for_an_estimate_waits_for_heap_memory(stage: ListStage) -> None:
    """Half the heap is for estimates on one broker: who waits for it is in the heap's books and hears its words."""
    clients = [stage.client() for _ in range(200)]
    for number, client in enumerate(clients):
        stage.ask(client, f"t/{number}")
    stage.step()
    waiting = stage.queues.statistics().queue_size
    assert 0 < waiting <= 200
    assert stage.limiter.heap.queue_size == 0
    assert stage.queues.short
    stage.advance(11)
    stage.step(500)
    refused = [error for client in clients for error in errors(client)]
    assert refused == [(ServerError.TooManyRequests, HEAP_REFUSAL)] * waiting
    assert stage.queues.statistics().timed_out == waiting


def test_a_burst_waits_for_those_of_it_that_were_put_off(stage: ListStage) -> None:
    first, clients = group_behind_a_question(stage, A_BURST)
    late = [stage.client() for _ in range(50)]

    def put_off() -> None:
        # As a connection does with what arrives in a turn that has worked enough.
        for client in late:
            request = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="t/n")
            work = stage.service.serve(ListRequest(client, request, stage.loop.time()))
            stage.loop_budget.defer(lambda client=client, work=work: client.start(work))  # type: ignore[misc]

    stage.call(put_off)
    answer(stage, first)
    (second,) = stage.asked()
    answer(stage, second)
    assert [len(client.commands()) for client in (*clients, *late)] == [1] * (A_BURST + 50)
    assert counted(stage.counters, "lists_questions") == 3, "one of them to have a connection"


def test_what_a_list_counts_as_is_learnt_from_lists_that_are_new_and_not_chosen_by_a_pattern(
    stage: ListStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = list[tuple[bool, bool]]()
    monkeypatch.setattr(UnprovenReaders, "learn", lambda _, size, known, chosen: learnt.append((known, chosen)))
    for pattern in ("public/.*", None, None):
        stage.ask(stage.client(), pattern=pattern)
        stage.step()
        answer(stage, stage.asked()[0])
    assert learnt == [(False, True), (False, False), (True, False)]
