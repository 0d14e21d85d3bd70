"""The order of waiters, first in, first out: a linked list from which any member can leave in constant time.

The semaphore uses `head`, `push`, `remove`, `drain` and `len` only, so that a queue which shares between keys
(`limiter.fair_queue`) can take this queue's place.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["LinkedList", "WaiterQueue"]


class Linked(Protocol):
    """A possible member of a linked list: the list it is in, or None, and the links, which the list owns."""

    queue: Any
    previous: Any
    next: Any


L = TypeVar("L", bound=Linked)


class LinkedList(Generic[L]):
    """A doubly linked list whose links are attributes of the members."""

    __slots__ = ("_size", "_tail", "head")

    def __init__(self) -> None:
        self.head: L | None = None
        self._tail: L | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, member: L) -> None:
        """Append `member`."""
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
        """Insert `member` after `after`; None makes `member` the first."""
        if after is self._tail:
            self.push(member)
            return
        before = self.head if after is None else after.next
        assert before is not None, "only the last member has no next member"
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
        """Remove `member` from any place."""
        assert member.queue is self, "member is in no list, or in another list"
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
        """Yield the members in order; the list must not change meanwhile."""
        member = self.head
        while member is not None:
            yield member
            member = member.next

    def drain(self) -> list[L]:
        """Remove all members and return them in order."""
        members = []
        while (member := self.head) is not None:
            self.remove(member)
            members.append(member)
        return members


class WaiterQueue(LinkedList[L]):
    """A list of waiters; `on_cancel` is called with a waiter cancelled while queued and must remove that waiter."""

    __slots__ = ("on_cancel",)

    def __init__(self, on_cancel: Callable[[L], None]) -> None:
        super().__init__()
        self.on_cancel = on_cancel
