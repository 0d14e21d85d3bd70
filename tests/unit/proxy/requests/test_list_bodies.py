"""One body for a group, in the form that suits it; and nothing of it left when the last permit for it has ended."""

import asyncio
import errno
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import slabs
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import TopicListAnswer
from proxy.net.pump import Pump
from proxy.net.spill.body import Body
from proxy.requests.topic_lists.bodies import PAGED_FROM_BYTES, LeavingBody, PagedBody, SlabListBody, encode
from proxy.requests.topic_lists.service import ListRequest
from tests.support.brokers.answers import answer_of
from tests.support.clients.list_clients import ListClient, turns
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import run_virtual
from tests.support.proxies.list_stage import KIB, Asked, ListStage, Sizes
from tests.support.sockets.endpoints import hangup_watcher


def permit_for(answer: TopicListAnswer) -> Permit:
    direct = AsyncSemaphore("direct", 0, max_queue=0, timeout_seconds=1, clock=ManualClock())
    permit = direct.try_acquire(answer.size)
    assert permit is not None
    return permit


def encoded(size: int, members: int) -> type[Body]:
    """Tell in what form a list of that size is kept for that many."""

    async def main() -> type[Body]:
        answer = answer_of(size)
        permit = permit_for(answer)
        encoded = await encode(answer, members, permit)
        assert (encoded.size, permit.size) == (answer.size, answer.size)
        encoded.close()
        assert permit.released
        return type(encoded.body)

    return run_virtual(main())


@pytest.mark.parametrize(
    ("size", "members", "kind"),
    [
        (100, 1, LeavingBody),
        (10 * PAGED_FROM_BYTES, 1, LeavingBody),
        (100, 2, SlabListBody),
        (PAGED_FROM_BYTES - 100, 1000, SlabListBody),
        (PAGED_FROM_BYTES + 100, 2, PagedBody),
        (10 * PAGED_FROM_BYTES, 1000, PagedBody),
    ],
)
def test_a_list_takes_the_form_that_suits_its_size_and_readers(size: int, members: int, kind: type) -> None:
    assert encoded(size, members) is kind


def test_without_a_descriptor_the_slabs_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(name: str, flags: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    assert encoded(10 * PAGED_FROM_BYTES, 5) is SlabListBody


@pytest.mark.parametrize(("size", "members"), [(1_000_000, 1), (1_000_000, 2), (30_000, 1), (30_000, 2)])
@pytest.mark.parametrize("position", [0, 1, slabs.SLAB_BYTES - 1, slabs.SLAB_BYTES, 3 * slabs.SLAB_BYTES + 17])
def test_a_copy_from_any_position_is_the_list(size: int, members: int, position: int) -> None:
    async def main() -> None:
        answer = answer_of(size)
        expected = b"".join(bytes(piece) for piece in answer.slices())
        copied = await encode(answer, members, permit_for(answer))
        buffer, found, at = bytearray(300_000), bytearray(), min(position, answer.size)
        while at < answer.size:
            count = copied.body.copy(at, memoryview(buffer))  # type: ignore[attr-defined]
            found += buffer[:count]
            at += count
        assert found == expected[position:]
        copied.close()

    run_virtual(main())


def test_a_copy_of_a_list_that_is_leaving_has_the_slabs_that_are_left() -> None:
    async def main() -> None:
        answer = answer_of(1_000_000)
        expected = b"".join(bytes(piece) for piece in answer.slices())
        body = LeavingBody(answer, lambda left: None)
        position = 0
        while position < 2 * slabs.SLAB_BYTES + 5:
            position += len(body.read(position, 100_000))
        buffer = bytearray(2_000_000)
        count = body.copy(position, memoryview(buffer))
        assert buffer[:count] == expected[position:]
        body.close()

    run_virtual(main())


def test_a_sole_list_gives_its_memory_back_as_it_leaves() -> None:
    async def main() -> None:
        answer = answer_of(1_000_000)
        permit = permit_for(answer)
        async with hangup_watcher() as hangup:
            loop = asyncio.get_running_loop()
            pump = Pump(loop, lambda: 0.0)
            direct = permit.owner
            assert isinstance(direct, AsyncSemaphore)
            client = ListClient(loop, hangup, direct, room=600_000)
            body = await encode(answer, 1, permit)
            client.start(client.output.send_pumped(body.prefix(1), body.body, pump))
            await turns(20)
            assert 400_000 <= permit.size < 600_000
            client.leave()
            await turns()
            body.close()
            assert direct.held == 0
            pump.close()

    run_virtual(main())


def test_closing_pages_twice_closes_no_strangers_descriptor() -> None:
    pages = PagedBody()
    pages.close()
    with open(os.devnull, "rb") as stranger:
        pages.close()
        os.fstat(stranger.fileno())


# --- nothing is left ------------------------------------------------------------------------------


class NotedBytes(bytearray):
    """A slab whose end can be seen."""


@pytest.fixture
def slabs_alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Count the slabs that are there while the collector of cycles is off: what only it could free has no owner."""
    made: list[weakref.ref[NotedBytes]] = []

    def noted(size: int) -> NotedBytes:
        slab = NotedBytes(size)
        made.append(weakref.ref(slab))
        return slab

    monkeypatch.setattr(slabs, "bytearray", noted, raising=False)
    gc.collect()
    gc.disable()
    yield lambda: sum(slab() is not None for slab in made)
    gc.enable()


LIST_SIZE = 25 * KIB


def one_list(stage: ListStage, members: int, room: int) -> list[ListClient]:
    """Have a question at the broker for that many."""
    stage.ask(stage.client(), "t/warm")
    stage.step()
    answer(stage, stage.asked()[0], size=10)
    clients = [stage.client(room=room) for _ in range(members)]

    async def ask() -> None:
        for number, client in enumerate(clients):
            request = pb.CommandGetTopicsOfNamespace(request_id=number, namespace="t/n")
            client.start(stage.service.serve(ListRequest(client, request, stage.loop.time())))

    stage.run(ask())
    stage.step()
    assert len(stage.asked()) == 1
    return clients


def answer(stage: ListStage, asked: Asked, size: int = LIST_SIZE, sent: int = LIST_SIZE + KIB) -> None:
    stage.call(asked.broker.begin, asked, size)
    stage.call(asked.broker.go_on, asked, sent)
    stage.step()


def all_leave(stage: ListStage, clients: list[ListClient]) -> None:
    for client in clients:
        stage.call(client.leave)
    stage.step()


@pytest.mark.parametrize("members", [1, 2])
class TestNothingIsLeft:
    def test_after_everybody_was_answered(self, slabs_alive: Callable[[], int], members: int) -> None:
        with closing(ListStage()) as stage:
            clients = one_list(stage, members, 1 << 40)
            answer(stage, stage.asked()[0])
            assert [len(client.commands()) for client in clients] == [1] * members
            assert (slabs_alive(), stage.limiter.direct.held) == (0, 0)

    def test_when_all_leave_while_it_arrives(self, slabs_alive: Callable[[], int], members: int) -> None:
        with closing(ListStage()) as stage:
            clients = one_list(stage, members, 1 << 40)
            answer(stage, stage.asked()[0], sent=10 * KIB)
            assert slabs_alive() == 1
            all_leave(stage, clients)
            assert (slabs_alive(), stage.limiter.heap.held) == (0, 0)

    def test_when_all_leave_while_it_waits_for_direct_memory(
        self, slabs_alive: Callable[[], int], members: int
    ) -> None:
        with closing(ListStage(Sizes(direct=30 * KIB))) as stage:
            held = stage.limiter.direct.try_acquire(20 * KIB)
            clients = one_list(stage, members, 1 << 40)
            answer(stage, stage.asked()[0])
            assert (slabs_alive(), stage.limiter.direct.queue_size) == (1, 1)
            all_leave(stage, clients)
            assert (slabs_alive(), stage.limiter.heap.held) == (0, 0)
            assert held is not None
            held.release()

    def test_when_all_leave_in_the_middle_of_it(self, slabs_alive: Callable[[], int], members: int) -> None:
        with closing(ListStage()) as stage:
            clients = one_list(stage, members, 5 * KIB)
            answer(stage, stage.asked()[0])
            assert (slabs_alive(), stage.limiter.heap.held) == (1, 0)
            all_leave(stage, clients)
            assert (slabs_alive(), stage.limiter.direct.held) == (0, 0)
