"""Group commit of equal topic-list requests: who shares a question, who pays, and when the next group goes.

A group takes joiners until its question is written to the broker. Requests that come later form the next group, whose
question goes when the answer to the one before begins to arrive (or never will). So no member ever gets an answer to a
question that was sent before its request arrived, and any number of equal requests at once costs the broker two
questions. What a group acquires is charged to a member that is there in that moment, and stays so when that member
leaves. With the last member the group ends, whatever it waits for.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from limiter.errors import PermitAcquireTimeout
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.commands import topic_list_question
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.fairness_key import role_of
from proxy.brokers.target import BrokerAddress
from proxy.core.registry import Registry
from proxy.requests.client import Client
from proxy.requests.topic_lists.bodies import EncodedList
from proxy.telemetry.events.recorder import RequestRecord
from proxy.telemetry.events.timeline import GroupTimeline, Step
from proxy.telemetry.refusals import Stage


class GroupFailure(Exception):
    """The error that ended a group before its members had an answer, and the wait in which the error came."""

    def __init__(self, error: Exception, stage: Stage) -> None:
        super().__init__(str(error))
        self.error = error
        self.stage = stage


class GroupKey(tuple[Hashable, ...]):
    """The parts that requests must have in common to share an answer: everything but their ids."""

    __slots__ = ()

    @classmethod
    def of(
        cls,
        broker: BrokerAddress,
        principal: Hashable,
        request: pb.CommandGetTopicsOfNamespace,
        *,
        unproven: bool = False,
    ) -> "GroupKey":
        """Return the key of a request of `principal`. Brokers answer by principal, so principals never share."""
        return cls((broker, principal, topic_list_question(request), unproven))

    @property
    def question(self) -> bytes:
        """Return the question; empty for a request that shares with no other, and so has no key."""
        return self[2] if self else b""  # type: ignore[return-value]  # as `of` makes it


# The key that is charged for a client's list of a namespace.
KeyOf: TypeAlias = Callable[[Client, str], Hashable]


class GroupMember:
    """A request in a group; `outcome` is the answer or the failure of the request."""

    __slots__ = ("client", "joined", "left", "outcome", "request_id", "reserved")

    def __init__(self, loop: asyncio.AbstractEventLoop, client: Client, request_id: int) -> None:
        self.client = client
        self.joined = loop.time()
        self.request_id = request_id
        self.reserved = False
        self.left = False
        self.outcome: asyncio.Future[EncodedList | Exception] = loop.create_future()

    def reserve(self) -> None:
        """Reserve the client's write lock for the list that memory is about to be asked for."""
        self.reserved = True
        self.client.output.write_lock.reserve()

    def unreserve(self) -> None:
        """End the reservation, if there is one."""
        if self.reserved:
            self.reserved = False
            self.client.output.write_lock.unreserve()

    def settle(self, outcome: EncodedList | Exception) -> None:
        """Set the outcome, unless the member has left or has one already."""
        # An error is set as a result, too: an exception raised in a thousand tasks would grow a thousand tracebacks.
        if not self.outcome.done():
            self.outcome.set_result(outcome)


# How many members are searched for a member whose key is not at its cap.
MEMBERS_ASKED: Final = 64


class ListGroup:
    """Requests that share one question and one answer, each of them charged to a member.

    When the last member leaves, the group's work is cancelled if there is no answer yet, else the answer is closed.
    """

    __slots__ = (
        "_cancel_work",
        "_groups",
        "_permits",
        "answer",
        "awake_until",
        "begun",
        "behind",
        "broker",
        "by_role",
        "direct_bytes",
        "direct_since",
        "key",
        "members",
        "predecessor",
        "principal",
        "request",
        "share",
        "share_ends_when_standing",
        "step",
        "timeline",
        "turn",
        "unproven",
    )

    def __init__(
        self,
        groups: "ListGroups",
        key: GroupKey,
        broker: BrokerAddress,
        principal: Hashable,
        request: pb.CommandGetTopicsOfNamespace,
        *,
        unproven: bool = False,
    ) -> None:
        self._groups = groups
        self.key = key
        self.unproven = unproven
        # Permits of unproven readers: the turn ends when the answer begins, the share when a client is proven.
        self.turn: Permit | None = None
        self.share: Permit | None = None
        self.share_ends_when_standing = False
        # Each member asked while an earlier list of its client was under way.
        self.behind = False
        # A client has answered a PING, and counts as awake until this loop time.
        self.awake_until = 0.0
        self.broker = broker
        # The principal whose credentials ask; `by_role`: members may have credentials of their own.
        self.principal = principal
        self.by_role = False
        self.request = request
        # Where the group stands; and since when, for the event log.
        self.step = Step.JOINED
        self.timeline: GroupTimeline | None = None
        self.members: dict[GroupMember, None] = {}
        self.predecessor: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.answer: EncodedList | None = None
        self.direct_since = 0.0
        self.direct_bytes = 0
        self._permits: list[Permit] = []
        self._cancel_work: Callable[[], object] | None = None

    @property
    def first_member(self) -> GroupMember:
        """Return the member that is there longest."""
        return next(iter(self.members))

    @property
    def key_of_first(self) -> Hashable:
        """Return the fairness key of the first member."""
        return self._groups.key_for(self.first_member.client, self.request.namespace)

    @property
    def share_key(self) -> Hashable:
        """Return the key of the group's turns for shares of direct memory."""
        return self._groups.share_key_for(self.first_member.client, self.request.namespace)

    def try_acquire(self, memory: AsyncSemaphore, n: int, *, of_share: bool = False) -> Permit | None:
        """Return a permit of `n` if that needs no wait; `of_share`: of a share of unproven readers."""
        permit = memory.try_acquire(n, key=self._payer(memory, n, of_share=of_share))
        if permit is not None:
            self._permits.append(permit)
        return permit

    async def acquire(
        self, memory: AsyncSemaphore, n: int, *, timeout_seconds: float | None = None, of_share: bool = False
    ) -> Permit:
        """Return a permit of `n` as `AsyncSemaphore.acquire` does, charged to a member that is present now.

        The wait goes on when that member leaves: the others want it. Members that joined during a wait that times out
        have time left, and the group waits anew for so long.
        """
        since = self._groups.loop.time()
        while True:
            payer, about = self._payer(memory, n, of_share=of_share), self.request.namespace
            try:
                permit = await memory.acquire(n, key=payer, about=about, timeout_seconds=timeout_seconds)
            except PermitAcquireTimeout:
                joined = next(reversed(self.members)).joined
                if joined <= since:
                    raise
                since = joined
                timeout_seconds = since + memory.timeout_seconds - self._groups.loop.time()
            else:
                self._permits.append(permit)
                return permit

    def _payer(self, memory: AsyncSemaphore, n: int, *, of_share: bool) -> Hashable:
        """Return the key of the first member that is not at its cap: a capped member must not delay the others."""
        first = self.share_key if of_share else self.key_of_first
        if len(self.members) == 1 or not memory.at_cap(first, n):
            return first
        key_for, namespace = self._groups.share_key_for if of_share else self._groups.key_for, self.request.namespace
        others = (key_for(member.client, namespace) for member in islice(self.members, 1, MEMBERS_ASKED))
        return next((key for key in others if not memory.at_cap(key, n)), first)

    def leave(self, member: GroupMember) -> bool:
        """Remove one member, with the last the group ends; return whether an answer has ended with it."""
        member.unreserve()
        member.left = True
        del self.members[member]
        if self.members:
            return False
        self._groups.emptied(self)
        return self.answer is not None

    # --- the group's work -------------------------------------------------------------------------

    def work_started(self, cancel: Callable[[], object]) -> None:
        """Keep `cancel`, which ends the work when the last member leaves before there is an answer."""
        self._cancel_work = cancel

    def work_over(self) -> None:
        """Forget the work: by its task a group would outlive its memory's permit."""
        self._cancel_work = None
        if self.timeline is not None:
            self.timeline.work_over()

    def stands_at(self, step: Step) -> None:
        """Record which step the group has reached, for refusals and for the event log."""
        self.step = step
        if self.timeline is not None:
            self.timeline.enter(step)

    def heap_is(self, size: int | None) -> None:
        """Record the size of the permit of heap memory, for the event log; None: it ends."""
        if self.timeline is not None:
            self.timeline.heap_is(size)

    def asks_again(self) -> None:
        """Begin anew, with a turn of those for unproven readers: no client of the group reads any more."""
        self.unproven = True
        for member in self.members:
            member.unreserve()

    def direct_granted(self, now: float, size: int, permit: Permit) -> None:
        """Record that direct memory for a list of `size` bytes is held: the list waits for nothing but its clients."""
        self.direct_since, self.direct_bytes = now, size
        self.stands_at(Step.WRITE)
        if self.timeline is not None:
            self.timeline.direct_is(permit.size)

    def direct_over(self) -> None:
        """Record that the list holds no direct memory any more."""
        if self.timeline is not None:
            self.timeline.direct_is(None)

    def moved_to_disk(self) -> None:
        """Record that the list holds no direct memory any more: its members' clients may have their next lists."""
        self.direct_over()
        for member in self.members:
            member.unreserve()

    def holds(self) -> dict[str, int]:
        """Return what the group holds of each limiter, by the limiter's name: bytes, and questions to a broker."""
        return {permit.owner.name: permit.size for permit in self._permits if permit.size}

    def end_turn(self) -> None:
        """Release the place of an unproven reader's question; a second call does nothing."""
        if self.turn is not None:
            self.turn.release()

    @property
    def held(self) -> bool:
        """Return whether the list has a share of direct memory now (`proxy.net.body_turn.ReaderShare`)."""
        return self.share is not None and not self.share.released

    def proven(self) -> None:
        """Release the share if no other member's client may still stand: one of them has shown that it reads."""
        if len(self.members) == 1:
            self.end_share()

    def stands(self) -> None:
        """Release a share that the list has because a client was awake: a client of the list stands still."""
        if self.share is not None and self.share_ends_when_standing:
            self.share.release()

    def end_share(self) -> None:
        """Release the share of direct memory: the list's reader is proven, or the list is over."""
        if self.share is not None:
            self.share.release()

    def end(self) -> None:
        """Cancel the work, or close the answer."""
        self.end_share()
        if self.answer is not None:
            self.answer.close()
            self.direct_over()
            return
        # A broker may keep the question for long, and no client is charged for it any more.
        self.key, self.request = GroupKey(), pb.CommandGetTopicsOfNamespace(namespace=self.request.namespace)
        if self._cancel_work is not None:
            self._cancel_work()


class ListGroups:
    """The groups that take joiners, and those whose question is at a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, key_for: KeyOf, share_key_for: KeyOf | None = None) -> None:
        self.loop = loop
        self.key_for = key_for
        self.share_key_for = share_key_for or key_for
        self._joinable: dict[GroupKey, ListGroup] = {}
        self._asked: dict[GroupKey, ListGroup] = {}
        # A group stays until its last member has left: there are as many groups as requests, at most.
        self.registry: Registry[ListGroup] = Registry()

    def __len__(self) -> int:
        return len(self._joinable) + len(self._asked)

    def takes_joiners(self, group: ListGroup) -> bool:
        """Return whether an equal request would join `group` now."""
        return self._joinable.get(group.key) is group

    def join(
        self,
        client: Client,
        broker: BrokerAddress,
        request: pb.CommandGetTopicsOfNamespace,
        *,
        share: bool,
        by_role: bool = False,
        unproven: bool = False,
        since: float = 0.0,
        record: RequestRecord | None = None,
    ) -> tuple[ListGroup, GroupMember, bool]:
        """Return the request's group, its membership, and whether the group is new; without `share` it is always new.

        `since` is when the request came; `record` has the timeline of a new group; `unproven` clients share with none
        but their like, and principals only `by_role`.
        """
        sharing = role_of(client.principal) if by_role else client.principal
        key = GroupKey.of(broker, sharing, request, unproven=unproven) if share else GroupKey()
        group = self._joinable.get(key) if share else None
        new = group is None
        if group is None:
            group = ListGroup(self, key, broker, client.principal, request, unproven=unproven)
            self.registry.add(group, since)
            if share:
                group.by_role = by_role
                self._joinable[key] = group
                asked = self._asked.get(key)
                group.predecessor = None if asked is None else asked.begun
        member = GroupMember(self.loop, client, request.request_id)
        group.members[member] = None
        if record is not None:
            question = key.question or topic_list_question(request)
            group.timeline = record.joined(group.timeline, broker, question)
        return group, member, new

    def asked(self, group: ListGroup) -> None:
        """Close a group to joiners: its question is being written."""
        if self._joinable.get(group.key) is group:
            del self._joinable[group.key]
            self._asked[group.key] = group

    def answer_begun(self, group: ListGroup, *permits: Permit) -> None:
        """Release the next group: the answer to this group's question has begun to arrive, or never will.

        The `permits` that the question held until then are released.
        """
        for permit in permits:
            permit.release()
        group.end_turn()
        if self._asked.get(group.key) is group:
            del self._asked[group.key]
        group.begun.set()

    def ended(self, group: ListGroup) -> None:
        """Forget a group whose work is over."""
        if self._joinable.get(group.key) is group:
            del self._joinable[group.key]
        self.answer_begun(group)

    def emptied(self, group: ListGroup) -> None:
        """Forget a group whose last member has left, and end it."""
        self.registry.remove(group)
        self.ended(group)
        group.end()


async def await_a_reader(members: Sequence[GroupMember], heap_bytes: int = 0, *, without_turn: bool = False) -> None:
    """Wait until the client of one of `members` has taken its earlier lists, and reserve its write lock.

    The list holds `heap_bytes` of heap memory meanwhile. `without_turn`: its question went out without a turn.
    """
    if reserve_first_ready(members):
        return
    changed = asyncio.Event()
    locks = [member.client.output.write_lock for member in members]
    for lock in locks:
        lock.listen(changed.set, heap_bytes, without_turn=without_turn)
    try:
        while not reserve_first_ready(members):
            await changed.wait()
            changed.clear()
    finally:
        for lock in locks:
            lock.forget(changed.set)


def reserve_first_ready(members: Sequence[GroupMember]) -> bool:
    """Reserve the lock of the first client of `members` that has taken its earlier lists; return if there is any."""
    for member in members:
        # Never reserve for a member that left: nothing would release that, and the client would get no more lists.
        if not member.left and member.client.output.write_lock.free:
            member.reserve()
            return True
    return False
