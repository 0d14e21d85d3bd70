"""The books of group commit: who shares with whom, who pays, when the next question goes, who is ready for a list.

Whole storms of groups are played by `tests/property/test_list_groups_machine.py`.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from limiter.semaphore import AsyncSemaphore
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import DisconnectCause
from proxy.net.output import Output
from proxy.net.write_watch import WriteLock
from proxy.requests.topic_lists.groups import GroupKey, GroupMember, ListGroup, ListGroups, await_a_reader
from tests.support.clients.list_clients import turns

BROKER = BrokerAddress("broker", 6650)
Modes = pb.CommandGetTopicsOfNamespace.Mode


def nowhere() -> Output:
    """Give an output of which only the lane is used."""
    return Output(cast(Any, None), cast(Any, None), cast(Any, None))


@dataclass(eq=False)
class Asker:
    """A client that only asks."""

    name: str
    principal: Hashable = None
    max_frame_bytes: int = 1 << 30
    gone: bool = False
    client_version: str | None = None
    cause: DisconnectCause | None = None
    output: Output = field(default_factory=nowhere)

    @property
    def lane(self) -> WriteLock:
        return self.output.write_lock


def request(request_id: int = 1, namespace: str = "t/n", **fields: Any) -> pb.CommandGetTopicsOfNamespace:
    return pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace, **fields)


class Books:
    """The groups of a proxy whose clients are charged by name."""

    def __init__(self) -> None:
        self.groups = ListGroups(asyncio.get_running_loop(), lambda client, namespace: client.name)
        self.cancelled: list[ListGroup] = []

    def join(self, client: Asker, *, share: bool = True, **fields: Any) -> tuple[ListGroup, GroupMember]:
        group, member, new = self.groups.join(cast(Any, client), BROKER, request(**fields), share=share)
        assert new is (len(group.members) == 1)
        if new:
            group.work_started(lambda: self.cancelled.append(group))
        return group, member

    def join_all(self, names: str) -> tuple[ListGroup, list[GroupMember], list[Asker]]:
        """Have clients of these names join one group."""
        askers = [Asker(name) for name in names]
        joined = [self.join(asker) for asker in askers]
        return joined[0][0], [member for _, member in joined], askers


@pytest.fixture
async def books() -> Books:
    return Books()


# --- keys -----------------------------------------------------------------------------------------


def key_of(broker: BrokerAddress = BROKER, principal: Hashable = None, **fields: Any) -> GroupKey:
    return GroupKey.of(broker, principal, request(**fields))


@pytest.mark.parametrize(
    "other",
    [
        key_of(namespace="t/other"),
        key_of(mode=Modes.ALL),
        key_of(topics_pattern="a.*"),
        key_of(topics_hash="1234"),
        key_of(properties=[pb.KeyValue(key="k", value="v")]),
        key_of(principal="role"),
        key_of(broker=BrokerAddress("broker", 6651)),
        # Nothing given is not the same as an empty text given: brokers may tell them apart.
        key_of(topics_hash=""),
    ],
)
def test_requests_that_brokers_may_answer_differently_have_different_keys(other: GroupKey) -> None:
    assert other != key_of()


def test_the_request_id_is_no_part_of_the_key_and_stays_in_the_request() -> None:
    asked = request(77)
    assert GroupKey.of(BROKER, None, asked) == key_of(request_id=2**40)
    assert asked.request_id == 77


# --- joining --------------------------------------------------------------------------------------


async def test_equal_requests_share_until_their_question_is_asked_and_the_next_waits_for_its_answer(
    books: Books,
) -> None:
    (first, _), (second, _) = books.join(Asker("a")), books.join(Asker("b"))
    books.groups.asked(first)
    (third, _), (fourth, _) = books.join(Asker("c")), books.join(Asker("d"))
    assert first is second
    assert third is fourth is not first
    assert third.predecessor is not None
    assert not third.predecessor.is_set()
    books.groups.answer_begun(first)
    assert third.predecessor.is_set()
    # A question that is asked once more takes no joiners.
    books.groups.asked(first)
    assert books.join(Asker("e"))[0] is third
    assert books.join(Asker("f", "alice"))[0] is not third, "principals never share"


# --- leaving --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_their_cap", "left", "payer"),
    [("", "", "a"), ("ac", "", "b"), ("", "a", "b"), ("ac", "b", "d"), ("abcd", "", "a")],
)
async def test_the_first_member_that_is_there_and_not_at_its_cap_pays(
    books: Books, at_their_cap: str, left: str, payer: str
) -> None:
    group, members, askers = books.join_all("abcd")
    for member in [member for member, asker in zip(members, askers, strict=True) if asker.name in left]:
        group.leave(member)
    heap = AsyncSemaphore("heap", 100, max_queue=0, timeout_seconds=10, clock=books.groups.loop)
    heap.set_sharing(True, 10)
    held = [await heap.acquire(10, key=key) for key in at_their_cap]
    asking = asyncio.get_running_loop().create_task(group.acquire(heap, 1))
    await turns()
    assert asking.done() == (at_their_cap != "abcd")
    for permit in held:
        permit.release()
    await turns()
    assert heap.top_holders(9) == [(payer, 1)]


@pytest.mark.threat("large-questions")
async def test_the_last_one_to_leave_cancels_the_work_keeps_no_text_and_lets_the_next_group_ask(books: Books) -> None:
    long = "x" * 10_000
    (group, first), (_, second) = [books.join(Asker(name), topics_pattern=long) for name in "ab"]
    books.groups.asked(group)
    successor, _ = books.join(Asker("c"), topics_pattern=long)
    group.leave(first)
    assert (books.cancelled, [*group.members]) == ([], [second])
    group.leave(second)
    assert books.cancelled == [group]
    assert (group.request.topics_pattern, group.key.question) == ("", b"")
    assert successor.predecessor is not None
    assert successor.predecessor.is_set()
    # The broker answers all the same.
    books.groups.answer_begun(group)
    assert len(books.groups) == 1


# --- who is ready for a list ----------------------------------------------------------------------


async def test_memory_is_asked_for_when_one_client_is_ready(books: Books) -> None:
    group, members, (stalled, ready, other) = books.join_all("abc")
    await stalled.lane.acquire()
    await await_a_reader(members)
    assert [member.reserved for member in members] == [False, True, False]
    assert not ready.lane.free
    assert not any(each.lane.awaited for each in (stalled, other))
    group.leave(members[1])
    assert ready.lane.free, "who leaves takes its promise back"


async def test_nobody_ready_waits_for_the_first_who_is_and_promises_nothing_to_one_that_gave_up(books: Books) -> None:
    """A promise of a member that has left would be nobody's to take back: its client would get no list any more."""
    group, members, askers = books.join_all("abc")
    for asker in askers:
        await asker.lane.acquire()
    waiting = asyncio.get_running_loop().create_task(await_a_reader(members))
    await turns()
    group.leave(members[0])
    askers[0].lane.release()
    await turns()
    assert (waiting.done(), askers[0].lane.free) == (False, True)
    askers[1].lane.release()
    await waiting
    assert [member.reserved for member in members] == [False, True, False]
    assert not any(asker.lane.awaited for asker in askers)
