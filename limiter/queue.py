"""Own the order of those who wait: the waiters and the queue they stand in; decide no grant, read no clock.

Rule: first in, first out, and anybody may leave from any place in constant time. The semaphore sees `head`,
`push`, `remove` and `len` only, so that a discipline which shares between keys can take this one's place.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union

from limiter.errors import PermitAcquireError

if TYPE_CHECKING:
    from limiter.permit import Permit

__all__ = ["Growth", "Newcomer", "Waiter", "WaiterQueue"]

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
    """One that holds nothing yet."""

    __slots__ = ("key",)

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, key: Hashable
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.key = key


class Growth(Waiter):
    """The growth of a held permit; `previous_size` is what to go back to if the grant is not taken."""

    __slots__ = ("permit", "previous_size")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, size: int, queued_at: float, deadline: float, permit: "Permit"
    ) -> None:
        super().__init__(loop, size, queued_at, deadline)
        self.permit = permit
        self.previous_size = permit.size


W = TypeVar("W", bound=Waiter)


class WaiterQueue(Generic[W]):
    """First in, first out; a doubly linked list through the waiters themselves.

    `on_cancel` is called with a waiter that was cancelled while it stood here; it must remove it.
    """

    __slots__ = ("_size", "_tail", "head", "on_cancel")

    def __init__(self, on_cancel: Callable[[W], None]) -> None:
        self.head: W | None = None
        self.on_cancel = on_cancel
        self._tail: W | None = None
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, waiter: W) -> None:
        """Put `waiter` at the end."""
        tail = self._tail
        waiter.queue = self
        waiter.previous = tail
        if tail is None:
            self.head = waiter
        else:
            tail.next = waiter
        self._tail = waiter
        self._size += 1

    def remove(self, waiter: W) -> None:
        """Take `waiter` out, wherever it stands."""
        assert waiter.queue is self, "waiter stands in no queue, or in another one"
        before, after = waiter.previous, waiter.next
        if before is None:
            self.head = after
        else:
            before.next = after
        if after is None:
            self._tail = before
        else:
            after.previous = before
        waiter.queue = waiter.previous = waiter.next = None
        self._size -= 1
