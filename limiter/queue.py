"""Own the order of those who wait: the waiters and the queue they stand in; decide no grant, read no clock.

Rule: first in, first out, and anybody may leave from any place in constant time. The semaphore sees `head`,
`push`, `remove`, `drain` and `len` only, so that a discipline which shares between keys (`limiter.shares`) can
take this one's place.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Union

from limiter.errors import PermitAcquireError

if TYPE_CHECKING:
    from limiter.permit import Permit

__all__ = ["Chain", "Growth", "Newcomer", "Waiter", "WaiterQueue"]

_Outcome = asyncio.Future[Union["Permit", PermitAcquireError]]


class Waiter(_Outcome):
    """One that waits: a future which knows its place in the queue and leaves it in the moment of `cancel()`.

    `Task.cancel` calls `cancel` on what the task awaits, so the place is free before the task runs again; a
    plain future would keep it until then. The outcome is a result even if it is an error: an exception set on
    a future that nobody awaits any more is logged by asyncio as lost.
    """

    __slots__ = ("deadline", "next", "previous", "queue", "queued_at", "size")

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float) -> None:
        super().__init__(loop=loop)
        self.size = size  # asked for; for a growth the new total
        self.queued_at = queued_at
        self.deadline = deadline
        self.queue: WaiterQueue[Any] | None = None
        # The links are the queue's: it alone knows which kind of waiter it holds.
        self.previous: Any = None
        self.next: Any = None

    def cancel(self, msg: object = None) -> bool:
        """Leave the queue at once and end as cancelled; False if the outcome is known already."""
        queue = self.queue
        if not super().cancel(msg):
            return False
        if queue is not None:
            queue.on_cancel(self)
        return True

    def __lt__(self, other: "Waiter") -> bool:
        return self.deadline < other.deadline


class Newcomer(Waiter):
    """One that holds nothing yet; `arrival` is its place in the order of all, where keys are served in turns.

    `about` is what its claim says that it is for.
    """

    __slots__ = ("about", "arrival", "key", "patient_until")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, key: Hashable
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.key = key
        self.about: Hashable = None
        self.patient_until = deadline
        self.arrival = 0

    def permit(self) -> "Permit | None":
        """Return what it was given, None if nothing (yet)."""
        outcome = self.result() if self.done() and not self.cancelled() else None
        return None if isinstance(outcome, PermitAcquireError) else outcome


class Growth(Waiter):
    """The growth of a held permit; `previous_size` is what to go back to if the grant is not taken."""

    __slots__ = ("permit", "previous_size")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, permit: "Permit"
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.permit = permit
        self.previous_size = permit.size


class Linked(Protocol):
    """One that can stand in a chain: the chain it stands in, or None, and its links, which are the chain's own."""

    queue: Any
    previous: Any
    next: Any


L = TypeVar("L", bound=Linked)
W = TypeVar("W", bound=Waiter)


class Chain(Generic[L]):
    """First in, first out; a doubly linked list through its members themselves."""

    __slots__ = ("_size", "_tail", "head")

    def __init__(self) -> None:
        self.head: L | None = None
        self._tail: L | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, member: L) -> None:
        """Put `member` at the end."""
        tail = self._tail
        member.queue = self
        member.previous = tail
        if tail is None:
            self.head = member
        else:
            tail.next = member
        self._tail = member
        self._size += 1

    def insert(self, member: L, after: L | None) -> None:
        """Put `member` behind `after`, or first."""
        if after is self._tail:
            self.push(member)
            return
        before = self.head if after is None else after.next
        assert before is not None, "only the last has nobody behind it"
        member.queue = self
        member.previous = after
        member.next = before
        before.previous = member
        if after is None:
            self.head = member
        else:
            after.next = member
        self._size += 1

    def remove(self, member: L) -> None:
        """Take `member` out, wherever it stands."""
        assert member.queue is self, "waiter stands in no queue, or in another one"
        before, after = member.previous, member.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self._tail = before
        else:
            after.previous = before
        member.queue = member.previous = member.next = None
        self._size -= 1

    def __iter__(self) -> Iterator[L]:
        """Yield all in their order; nothing may change meanwhile."""
        member = self.head
        while member is not None:
            yield member
            member = member.next

    def drain(self) -> list[L]:
        """Take all out and return them in their order."""
        members = []
        while (member := self.head) is not None:
            self.remove(member)
            members.append(member)
        return members


class WaiterQueue(Chain[W]):
    """A chain of those who wait.

    `on_cancel` is called with a waiter that was cancelled while it stood here; it must remove it.
    """

    __slots__ = ("on_cancel",)

    def __init__(self, on_cancel: Callable[[W], None]) -> None:
        super().__init__()
        self.on_cancel = on_cancel
