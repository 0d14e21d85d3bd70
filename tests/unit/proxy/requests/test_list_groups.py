"""The books of group commit: who shares with whom, who pays, when the next question goes, who is ready for a list."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import DisconnectCause
from proxy.net.output import Output
from proxy.net.pump import Body
from proxy.net.write_watch import WriteLock
from proxy.requests.client import ClientView
from proxy.requests.topic_lists.bodies import too_large_for
from proxy.requests.topic_lists.groups import (
    GroupKey,
    GroupMember,
    ListGroup,
    ListGroups,
    await_a_reader,
)
from tests.support.clients.list_clients import turns
from tests.support.loops.loops import run_virtual

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


class Answer:
    """An answer that notes its end."""

    size = 0

    def __init__(self) -> None:
        self.closed = 0

    @property
    def body(self) -> Body:
        raise AssertionError("nothing is written here")

    def prefix(self, request_id: int) -> bytes:
        raise AssertionError("nothing is written here")

    def on_moved(self, listener: Callable[[], None]) -> None:
        raise AssertionError("nothing is written here")

    def forget(self, listener: Callable[[], None]) -> None:
        raise AssertionError("nothing is written here")

    def close(self) -> None:
        self.closed += 1


def request(request_id: int = 1, namespace: str = "t/n", **fields: Any) -> pb.CommandGetTopicsOfNamespace:
    return pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace, **fields)


class Books:
    """The groups of a proxy whose clients are charged by name."""

    def __init__(self) -> None:
        self.groups = ListGroups(asyncio.get_running_loop(), lambda client, namespace: client.name)
        self.cancelled: list[ListGroup] = []

    def join(
        self, client: Asker, number: int = 1, *, share: bool = True, **fields: Any
    ) -> tuple[ListGroup, GroupMember]:
        group, member, new = self.groups.join(client, BROKER, request(number, **fields), share=share)
        assert new is (len(group.members) == 1)
        if new:
            group.work_started(lambda: self.cancelled.append(group))
        return group, member


def on_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtual(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


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


def test_the_request_id_is_no_part_of_the_key() -> None:
    assert key_of(request_id=1) == key_of(request_id=2**40)
    assert hash(key_of(request_id=1)) == hash(key_of(request_id=2))


def test_a_key_leaves_its_request_as_it_was() -> None:
    asked = request(77)
    GroupKey.of(BROKER, None, asked)
    assert asked.request_id == 77


# --- joining --------------------------------------------------------------------------------------


@on_a_loop
async def test_equal_requests_share_a_group_until_its_question_is_asked() -> None:
    books = Books()
    first, _ = books.join(Asker("a"), 1)
    second, _ = books.join(Asker("b"), 2)
    books.groups.asked(first)
    third, _ = books.join(Asker("c"), 3)
    fourth, _ = books.join(Asker("d"), 4)
    assert first is second
    assert third is fourth is not first
    assert [len(group.members) for group in (first, third)] == [2, 2]


@on_a_loop
async def test_requests_of_two_principals_never_share() -> None:
    books = Books()
    assert books.join(Asker("a", "alice"))[0] is not books.join(Asker("b", "bob"))[0]


@on_a_loop
async def test_without_coalescing_every_request_is_a_group_that_waits_for_nobody() -> None:
    books = Books()
    first, _ = books.join(Asker("a"), share=False)
    books.groups.asked(first)
    second, _ = books.join(Asker("b"), share=False)
    third, _ = books.join(Asker("c"))
    assert len({id(group) for group in (first, second, third)}) == 3
    assert [group.predecessor for group in (first, second, third)] == [None, None, None]
    assert len(books.groups) == 1


@on_a_loop
async def test_the_next_group_waits_until_the_answer_before_it_begins() -> None:
    books = Books()
    first, _ = books.join(Asker("a"))
    books.groups.asked(first)
    second, _ = books.join(Asker("b"))
    assert second.predecessor is not None
    assert not second.predecessor.is_set()
    books.groups.answer_begun(first)
    assert second.predecessor.is_set()


@on_a_loop
async def test_a_group_whose_predecessors_answer_has_begun_waits_for_nobody() -> None:
    books = Books()
    first, _ = books.join(Asker("a"))
    books.groups.asked(first)
    books.groups.answer_begun(first)
    assert books.join(Asker("b"))[0].predecessor is None


@on_a_loop
async def test_a_question_asked_once_more_takes_no_joiners() -> None:
    books = Books()
    first, _ = books.join(Asker("a"))
    books.groups.asked(first)
    books.groups.answer_begun(first)
    second, _ = books.join(Asker("b"))
    books.groups.asked(first)
    assert books.join(Asker("c"))[0] is second
    assert len(second.members) == 2


@on_a_loop
async def test_a_group_that_failed_before_it_asked_takes_no_joiners_and_holds_up_nobody() -> None:
    books = Books()
    first, _ = books.join(Asker("a"))
    books.groups.ended(first)
    second, _ = books.join(Asker("b"))
    assert second is not first
    assert second.predecessor is None
    # The end of the old one is no business of the new one.
    books.groups.ended(first)
    assert books.join(Asker("c"))[0] is second


# --- leaving --------------------------------------------------------------------------------------


@on_a_loop
async def test_a_member_that_leaves_costs_the_others_nothing() -> None:
    books = Books()
    group, _ = books.join(Asker("a"), 1)
    _, leaving = books.join(Asker("b"), 2)
    group.leave(leaving)
    assert [member.request_id for member in group.members] == [1]
    assert books.cancelled == []


class Memory:
    """Memory of which some keys may have no more."""

    def __init__(self, *at_their_cap: Hashable) -> None:
        self.at_their_cap = at_their_cap
        self.asked_about: list[Hashable] = []

    def at_cap(self, key: Hashable, n: int) -> bool:
        self.asked_about.append(key)
        return key in self.at_their_cap


@on_a_loop
async def test_a_member_at_its_cap_does_not_keep_the_others_waiting() -> None:
    books = Books()
    members = [books.join(Asker(name), at) for at, name in enumerate("abcd")]
    group = members[0][0]
    capped, all_capped = group.charge(Memory("a", "c"), 1), group.charge(Memory(*"abcd"), 1)
    assert (capped.key, all_capped.key) == ("b", "a")
    group.leave(members[1][1])
    assert (capped.key, all_capped.key) == ("d", "a")
    group.leave(members[0][1])
    assert (capped.key, all_capped.key) == ("d", "c")


@on_a_loop
async def test_a_charge_looks_at_no_more_members_than_it_needs() -> None:
    keys: list[str] = []

    def key_of_client(client: ClientView, namespace: str) -> str:
        keys.append(client.name)
        return client.name

    groups = ListGroups(asyncio.get_running_loop(), key_of_client)
    for at, name in enumerate("abcdefgh"):
        group, _, _ = groups.join(Asker(name), BROKER, request(at), share=True)
    memory = Memory("a", "b")
    assert group.charge(memory, 1).key == "c"
    assert keys == memory.asked_about == ["a", "b", "c"]


@on_a_loop
async def test_the_first_member_pays_and_then_the_next() -> None:
    books = Books()
    members = [books.join(Asker(name), at) for at, name in enumerate("abc")]
    group = members[0][0]
    heap, direct = group.charge(Memory(), 1), group.charge(Memory(), 1)
    paid = []
    for _, member in (members[1], members[0], members[2]):
        group.leave(member)
        paid.append((heap.key, direct.key))
    # With the last nobody is left to be charged: what was held is given back.
    assert paid == [("a", "a"), ("c", "c"), ("c", "c")]


@on_a_loop
async def test_the_last_one_to_leave_cancels_the_work_and_lets_the_next_group_ask() -> None:
    books = Books()
    group, first = books.join(Asker("a"), 1)
    _, second = books.join(Asker("b"), 2)
    books.groups.asked(group)
    successor, _ = books.join(Asker("c"), 3)
    group.leave(first)
    assert books.cancelled == []
    group.leave(second)
    assert books.cancelled == [group]
    assert successor.predecessor is not None
    assert successor.predecessor.is_set()
    assert len(books.groups) == 1


@on_a_loop
async def test_an_emptied_group_takes_no_joiners() -> None:
    books = Books()
    group, member = books.join(Asker("a"))
    group.leave(member)
    assert len(books.groups) == 0
    assert books.join(Asker("b"))[0] is not group


@on_a_loop
async def test_an_answer_is_given_back_by_the_last_member_only() -> None:
    books, answer = Books(), Answer()
    group, first = books.join(Asker("a"), 1)
    _, second = books.join(Asker("b"), 2)
    group.answer = answer
    group.leave(first)
    assert answer.closed == 0
    group.leave(second)
    assert answer.closed == 1
    assert books.cancelled == []


@on_a_loop
async def test_a_member_is_told_once() -> None:
    books, answer = Books(), Answer()
    _, member = books.join(Asker("a"))
    failure = RuntimeError("too late")
    member.settle(answer)
    member.settle(failure)
    assert await member.outcome is answer


@on_a_loop
async def test_a_member_that_has_left_is_not_told() -> None:
    books = Books()
    group, member = books.join(Asker("a"))
    member.outcome.cancel()
    group.leave(member)
    member.settle(RuntimeError("nobody listens"))
    assert member.outcome.cancelled()


# --- who is ready for a list ----------------------------------------------------------------------


@on_a_loop
async def test_memory_is_asked_for_when_one_client_is_ready() -> None:
    books = Books()
    stalled, ready = Asker("a"), Asker("b")
    await stalled.lane.acquire()
    group, _ = books.join(stalled, 1)
    _, second = books.join(ready, 2)
    await await_a_reader(list(group.members))
    assert [member.reserved for member in group.members] == [False, True]
    assert not ready.lane.free
    second.unreserve()
    second.unreserve()
    assert ready.lane.free


@on_a_loop
async def test_nobody_listens_to_the_other_clients_when_one_is_ready() -> None:
    books = Books()
    ready, other = Asker("a"), Asker("b")
    group, _ = books.join(ready, 1)
    books.join(other, 2)
    await await_a_reader(list(group.members))
    assert [member.reserved for member in group.members] == [True, False]
    assert other.output._write_lock is None, "nobody has asked for it"


@on_a_loop
async def test_nobody_ready_waits_for_the_first_who_is() -> None:
    books = Books()
    askers = [Asker("a"), Asker("b")]
    for asker in askers:
        await asker.lane.acquire()
    group, _ = books.join(askers[0], 1)
    books.join(askers[1], 2)
    waiting = asyncio.get_running_loop().create_task(await_a_reader(list(group.members)))
    await turns()
    assert not waiting.done()
    askers[1].lane.release()
    await waiting
    assert [member.reserved for member in group.members] == [False, True]
    assert not any(asker.lane._listeners for asker in askers)


@on_a_loop
async def test_a_client_whose_request_gave_up_is_promised_nothing() -> None:
    """A promise of a member that has left would be nobody's to take back: its client would get no list any more."""
    books = Books()
    slow, slower = Asker("a"), Asker("b")
    for asker in (slow, slower):
        await asker.lane.acquire()
    group, gave_up = books.join(slow, 1)
    _, second = books.join(slower, 2)
    waiting = asyncio.get_running_loop().create_task(await_a_reader(list(group.members)))
    await turns()
    group.leave(gave_up)
    slow.lane.release()
    await turns()
    assert slow.lane.free
    assert not waiting.done()
    slower.lane.release()
    await waiting
    assert (gave_up.reserved, second.reserved) == (False, True)


@on_a_loop
async def test_a_member_that_leaves_takes_its_promise_back() -> None:
    books = Books()
    asker = Asker("a")
    group, member = books.join(asker, 1)
    books.join(Asker("b"), 2)
    await await_a_reader([member])
    group.leave(member)
    assert asker.lane.free


@on_a_loop
async def test_waiting_for_a_reader_leaves_no_listener_when_it_is_given_up() -> None:
    books = Books()
    asker = Asker("a")
    await asker.lane.acquire()
    group, _ = books.join(asker)
    waiting = asyncio.get_running_loop().create_task(await_a_reader(list(group.members)))
    await turns()
    assert asker.lane._listeners
    waiting.cancel()
    await turns()
    assert waiting.cancelled()
    assert not asker.lane._listeners


# --- frames a client does not take ----------------------------------------------------------------


def test_a_list_above_the_clients_frame_limit_is_refused_with_both_sizes_and_the_ways_out() -> None:
    failure = too_large_for(Asker("a", max_frame_bytes=1000), 10, 1001)
    assert failure.code == ServerError.NotAllowedError
    for text in ("10 topics", "1001 bytes", "accepts 1000", "pattern", "maxMessageSize"):
        assert text in failure.message


@pytest.mark.threat("large-questions")
@on_a_loop
async def test_a_group_whose_clients_have_left_a_question_at_a_broker_keeps_none_of_its_text() -> None:
    books = Books()
    group, member = books.join(Asker("a"), topics_pattern="x" * 10_000)
    books.groups.asked(group)
    group.leave(member)
    assert books.cancelled == [group]
    assert (group.request.topics_pattern, group.key.question) == ("", b"")
    # The broker answers all the same.
    books.groups.answer_begun(group)
    assert not len(books.groups)
