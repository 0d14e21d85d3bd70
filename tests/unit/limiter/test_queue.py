"""Test the queue of waiters: order, leaving from any place, cancel as leaving."""

import asyncio
import itertools

import pytest

from limiter.permit import AcquireWaiter
from limiter.queue import WaiterQueue


class Line:
    """A queue of newcomers that remembers who was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[int] = []
        self.queue: WaiterQueue[AcquireWaiter] = WaiterQueue(self._left)

    def _left(self, waiter: AcquireWaiter) -> None:
        self.queue.remove(waiter)
        self.cancelled.append(waiter.size)

    def push(self, size: int) -> AcquireWaiter:
        waiter = AcquireWaiter(asyncio.get_running_loop(), size, 0.0, 1.0, None)
        self.queue.push(waiter)
        return waiter

    def sizes(self) -> list[int]:
        found, waiter = [], self.queue.head
        while waiter is not None:
            found.append(waiter.size)
            waiter = waiter.next
        assert len(self.queue) == len(found)
        return found


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_leaving_in_any_order_keeps_the_order_of_the_rest(order: tuple[int, ...]) -> None:
    line = Line()
    waiters = [line.push(size) for size in range(4)]
    left: set[int] = set()
    for size in order:
        line.queue.remove(waiters[size])
        left.add(size)
        assert line.sizes() == [size for size in range(4) if size not in left]
    line.push(9)
    assert line.sizes() == [9]


async def test_cancel_leaves_at_once_and_only_once() -> None:
    line = Line()
    first, second = line.push(1), line.push(2)
    assert first.cancel()
    assert not first.cancel()
    assert line.sizes() == [2]
    assert line.cancelled == [1]
    assert not second.cancelled()


async def test_cancel_after_the_outcome_changes_nothing() -> None:
    line = Line()
    waiter = line.push(1)
    line.queue.remove(waiter)
    waiter.set_result(None)  # type: ignore[arg-type]  # any outcome
    assert not waiter.cancel()
    assert line.cancelled == []


async def test_removing_twice_is_a_broken_invariant() -> None:
    line = Line()
    waiter = line.push(1)
    line.queue.remove(waiter)
    with pytest.raises(AssertionError, match="member is in no list"):
        line.queue.remove(waiter)


async def test_one_that_left_holds_no_neighbour() -> None:
    line = Line()
    waiters = [line.push(size) for size in range(3)]
    line.queue.remove(waiters[1])
    assert (waiters[1].queue, waiters[1].previous, waiters[1].next) == (None, None, None)
