"""Own the order of those who wait: the chain and the queue they stand in; decide no grant, read no clock.

Rule: first in, first out, and anybody may leave from any place in constant time. The semaphore sees `head`,
`push`, `remove`, `drain` and `len` only, so that a discipline which shares between keys (`limiter.fair_queue`) can
take this one's place.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["LinkedList", "WaiterQueue"]


class Linked(Protocol):
    """One that can stand in a chain: the chain it stands in, or None, and its links, which are the chain's own."""

    queue: Any
    previous: Any
    next: Any


L = TypeVar("L", bound=Linked)


class LinkedList(Generic[L]):
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


class WaiterQueue(LinkedList[L]):
    """A chain of those who wait.

    `on_cancel` is called with a waiter that was cancelled while it stood here; it must remove it.
    """

    __slots__ = ("on_cancel",)

    def __init__(self, on_cancel: Callable[[L], None]) -> None:
        super().__init__()
        self.on_cancel = on_cancel
