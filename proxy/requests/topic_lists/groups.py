"""Group commit of equal topic-list requests: who shares a question, who is charged, and when the next group goes.

A group takes joiners until its question is written to the broker. Requests that come later form the next group, whose
question goes when the answer to the one before begins to arrive (or never will). So no member ever gets an answer to a
question that was sent before its request arrived, and any number of equal requests at once costs the broker two
questions. A member that leaves costs the others nothing; with the last one the group ends, whatever it waits for.
Nothing here reads a clock or touches a socket.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from limiter.charge import Charge
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.brokers.target import BrokerAddress
from proxy.core.errors import OverLimit, RequestFailed
from proxy.core.registry import Registry
from proxy.requests.client import ClientView
from proxy.telemetry.events.timeline import RequestTimeline
from proxy.telemetry.refusals import Stage


class SharedAnswer(Protocol):
    """An encoded topic list, ready to be written to any number of members (`proxy.requests.topic_lists.bodies`)."""

    @property
    def size(self) -> int:
        """Count the bytes of the list."""

    async def write_to(self, client: ClientView, request_id: int) -> None:
        """Write the list as the answer to `request_id`; returns when it has left user space."""

    def close(self) -> None:
        """Give back what the list holds: the last member has gone."""


class GroupFailure(Exception):
    """What ended a group before its members had an answer, and where it stood."""

    def __init__(self, error: Exception, stage: Stage) -> None:
        super().__init__(str(error))
        self.error = error
        self.stage = stage


class GroupKey(tuple[Hashable, ...]):
    """What requests must have in common to share an answer: everything but their ids."""

    __slots__ = ()

    @classmethod
    def of(cls, broker: BrokerAddress, principal: Hashable, request: pb.CommandGetTopicsOfNamespace) -> "GroupKey":
        """Make the key of a request. Brokers answer by principal, so principals never share."""
        return cls((broker, principal, question_of(request)))

    @property
    def question(self) -> bytes:
        """Give what is asked for; empty for a group of its own, which has no key."""
        return self[2] if self else b""  # type: ignore[return-value]  # as `of` makes it


def question_of(request: pb.CommandGetTopicsOfNamespace) -> bytes:
    """Give all that a request asks for, without its id."""
    question = pb.CommandGetTopicsOfNamespace()
    question.CopyFrom(request)
    question.request_id = 0
    return question.SerializeToString(deterministic=True)


class GroupMember:
    """One request in a group; `outcome` is its answer or what it failed with."""

    __slots__ = ("client", "left", "outcome", "promised", "request_id")

    def __init__(self, loop: asyncio.AbstractEventLoop, client: ClientView, request_id: int) -> None:
        self.client = client
        self.request_id = request_id
        self.promised = False
        self.left = False
        self.outcome: asyncio.Future[SharedAnswer | Exception] = loop.create_future()

    def promise(self) -> None:
        """Ask for memory only when this member's client is ready for the list."""
        self.promised = True
        self.client.output.list_lane.promise()

    def redeem(self) -> None:
        """Take the promise back, if there is one."""
        if self.promised:
            self.promised = False
            self.client.output.list_lane.redeem()

    def settle(self, outcome: SharedAnswer | Exception) -> None:
        """Tell the member how it ended, unless it has left or was told already."""
        # A result even for an error: one exception raised in a thousand tasks would grow a thousand tracebacks.
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Charged(Protocol):
    """Memory that members are charged for (`limiter.semaphore.AsyncSemaphore`)."""

    def at_cap(self, key: Hashable, n: int) -> bool:
        """Tell whether `key` would have to wait for permits of its own."""


@dataclass(slots=True)
class _MemberCharge:
    charge: Charge
    member: GroupMember
    memory: Charged
    n: int


# How many members are searched for a member whose key is not at its cap.
MEMBERS_ASKED: Final = 64


class ListGroup:
    """Requests that share one question and one answer; the first member is charged for them, then the next.

    When the last member leaves, `cancel` is called if there is no answer yet, else `on_end`.
    """

    __slots__ = (
        "_key_for",
        "_on_empty",
        "answer",
        "begun",
        "broker",
        "cancel",
        "charges",
        "key",
        "members",
        "on_end",
        "predecessor",
        "principal",
        "request",
        "stage",
        "story",
        "waits_for_memory",
    )

    def __init__(
        self,
        key: GroupKey,
        broker: BrokerAddress,
        principal: Hashable,
        request: pb.CommandGetTopicsOfNamespace,
        charge: Callable[[ClientView, str], Hashable],
        on_empty: Callable[["ListGroup"], None],
    ) -> None:
        self.key = key
        self.broker = broker
        self.principal = principal
        self.request = request
        self.members: dict[GroupMember, None] = {}
        self.predecessor: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.answer: SharedAnswer | None = None
        self.stage = Stage.BROKER
        self.story: RequestTimeline | None = None
        self.waits_for_memory: Callable[[], bool] = _never
        self.charges: list[_MemberCharge] = []
        self.cancel: Callable[[], object] = _nothing
        self.on_end: Callable[[], object] = _nothing
        self._key_for = charge
        self._on_empty = on_empty

    @property
    def charged_member(self) -> GroupMember:
        """Return the member that is charged: the member that joined first."""
        return next(iter(self.members))

    def charge(self, memory: Charged, n: int) -> Charge:
        """Return a charge for `n` of `memory`; when the charged member leaves, another member is charged."""
        member, key = self._member_to_charge(memory, n)
        charge = Charge(key, self.request.namespace)
        self.charges.append(_MemberCharge(charge, member, memory, n))
        return charge

    def _member_to_charge(self, memory: Charged, n: int) -> tuple[GroupMember, Hashable]:
        """Return the first member whose key is not at its cap: a capped member must not delay the others."""
        members = [(member, self._key_of(member)) for member in islice(self.members, MEMBERS_ASKED)]
        return next((found for found in members if not memory.at_cap(found[1], n)), members[0])

    def _key_of(self, member: GroupMember) -> Hashable:
        return self._key_for(member.client, self.request.namespace)

    def leave(self, member: GroupMember) -> None:
        """Remove a member; the next member is charged, and with the last member the group ends."""
        member.redeem()
        member.left = True
        del self.members[member]
        if not self.members:
            self._on_empty(self)
            return
        for charged in self.charges:
            if charged.member is member:
                charged.member, key = self._member_to_charge(charged.memory, charged.n)
                charged.charge.reassign(key)

    def stands_at(self, stage: Stage, part: int) -> None:
        """Note what the group waits for, and what its time counts as if it is recorded."""
        self.stage = stage
        if self.story is not None:
            self.story.enter(part)

    def stopped_at(self) -> Stage:
        """Tell what the group waits for: an answer that waits to be read waits for heap memory."""
        return Stage.HEAP if self.stage is Stage.BROKER and self.waits_for_memory() else self.stage

    def holds(self) -> dict[str, int]:
        """Give what is held for it of each limiter, by the limiter's name: bytes, and questions to a broker."""
        found = (charged.charge.holding for charged in self.charges)
        return {name: held for name, held in filter(None, found) if held}

    def work_over(self) -> None:
        """Forget the work: by its task, or by the question it asked, a group would outlive its memory's permit."""
        self.cancel = _nothing

    def question_over(self) -> None:
        """Forget the question, and keep where it stood."""
        self.stage = self.stopped_at()
        self.waits_for_memory = _never

    def end(self) -> None:
        """Stop the work, or give the answer back."""
        # It knows this group: left here, the two would keep the list until a collector of cycles comes by.
        on_end, self.on_end = self.on_end, _nothing
        if self.answer is None:
            self.cancel()
        else:
            self.answer.close()
            if self.story is not None:
                self.story.direct_over()
            on_end()


class ListGroups:
    """Know which groups take joiners, and which have a question on the wire."""

    def __init__(self, loop: asyncio.AbstractEventLoop, charge: Callable[[ClientView, str], Hashable]) -> None:
        self._loop = loop
        self._key_for = charge
        self._joinable: dict[GroupKey, ListGroup] = {}
        self._asked: dict[GroupKey, ListGroup] = {}
        # Each until its last member has left: as many as there are requests, at most.
        self.roll: Registry[ListGroup] = Registry()

    def __len__(self) -> int:
        return len(self._joinable) + len(self._asked)

    def takes_joiners(self, group: ListGroup) -> bool:
        """Tell whether an equal request would join it now."""
        return self._joinable.get(group.key) is group

    def join(
        self,
        client: ClientView,
        broker: BrokerAddress,
        request: pb.CommandGetTopicsOfNamespace,
        *,
        share: bool,
        since: float = 0.0,
    ) -> tuple[ListGroup, GroupMember, bool]:
        """Give the request's group, its membership, and whether the group is new; without `share` it is always new.

        `since` is when the request came.
        """
        key = GroupKey.of(broker, client.principal, request) if share else GroupKey()
        group = self._joinable.get(key) if share else None
        new = group is None
        if group is None:
            group = ListGroup(key, broker, client.principal, request, self._key_for, self._emptied)
            self.roll.add(group, since)
            if share:
                self._joinable[key] = group
                asked = self._asked.get(key)
                group.predecessor = None if asked is None else asked.begun
        member = GroupMember(self._loop, client, request.request_id)
        group.members[member] = None
        for charged in group.charges:
            charged.charge.extend()
        return group, member, new

    def asked(self, group: ListGroup) -> None:
        """Close a group to joiners: its question is being written."""
        if self._joinable.get(group.key) is group:
            del self._joinable[group.key]
            self._asked[group.key] = group

    def answer_begun(self, group: ListGroup) -> None:
        """Let the next group ask: this one's answer has begun to arrive, or never will."""
        if self._asked.get(group.key) is group:
            del self._asked[group.key]
        group.begun.set()

    def ended(self, group: ListGroup) -> None:
        """Forget a group whose work is over."""
        if self._joinable.get(group.key) is group:
            del self._joinable[group.key]
        self.answer_begun(group)

    def _emptied(self, group: ListGroup) -> None:
        self.roll.remove(group)
        self.ended(group)
        group.end()


async def await_a_reader(members: Sequence[GroupMember]) -> None:
    """Wait until the client of one of `members` has taken its earlier lists, and promise it this one."""
    changed = asyncio.Event()
    lanes = [member.client.output.list_lane for member in members]
    for lane in lanes:
        lane.listen(changed.set)
    try:
        while True:
            for member in members:
                # A promise to one that has left would be nobody's to take back: its client would get no list any more.
                if not member.left and member.client.output.list_lane.free:
                    member.promise()
                    return
            await changed.wait()
            changed.clear()
    finally:
        for lane in lanes:
            lane.forget(changed.set)


def too_large_for(client: ClientView, topic_count: int, frame_bytes: int) -> RequestFailed:
    """Say that a list needs a larger frame than the client accepts, and the ways out."""
    return OverLimit(
        ServerError.NotAllowedError,
        f"topic list of {topic_count} topics needs a frame of {frame_bytes} bytes, the client accepts"
        f" {client.max_frame_bytes}: ask with a topics pattern, or raise maxMessageSize on broker, proxy and client",
        stage="client_frame",
        key="maxMessageSize",
        asked=frame_bytes,
        limit=client.max_frame_bytes,
    )


def _nothing() -> None:
    return None


def _never() -> bool:
    return False
