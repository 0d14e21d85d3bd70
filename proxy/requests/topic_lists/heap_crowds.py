"""The lists that wait for a share of direct memory: they hold a part of heap memory before no more questions go out.

Questions that wait for that take turns by network, and go out one by one, each with what its list will probably hold:
a question that has just gone out counts, or all of a crowd would go out while none of its lists is there.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from limiter.fair_line import Entry, FairLine
from limiter.semaphore import AsyncSemaphore
from limiter.sites import site_of
from proxy.requests.reader_shares import ReaderShares
from proxy.requests.topic_lists.groups import ListGroup


class AskAgain(Exception):
    """A list may not wait in heap memory: there is no room for lists whose questions went out as this one's did."""


class HeapCrowd:
    """The lists of one kind, and the questions that wait because of them; `part` is the part of heap memory."""

    def __init__(self, heap: AsyncSemaphore, part: int) -> None:
        self._heap = heap
        self._part = part
        self._waiting_bytes = 0
        # The bytes that the lists of questions which are out will probably hold.
        self._asked: dict[ListGroup, int] = {}
        self._asked_bytes = 0
        # The questions that wait, by network, with what each will count.
        self._line: FairLine[Entry[tuple[ListGroup, asyncio.Future[None], int]]] = FairLine()

    @property
    def asking(self) -> int:
        """Return the number of questions that wait."""
        return len(self._line)

    @property
    def full(self) -> bool:
        """Return whether no more questions may go out."""
        return self._passes_the_part(self._waiting_bytes + self._asked_bytes)

    @property
    def short(self) -> bool:
        """Return whether questions wait because of lists that wait for a share; questions that are out end soon."""
        return self.asking > 0 and self._passes_the_part(self._waiting_bytes)

    def counts(self, group: ListGroup) -> bool:
        """Return whether a question of `group` has passed, and its list has not arrived."""
        return group in self._asked

    async def passed(self, group: ListGroup, shares: ReaderShares, expected_bytes: int = 0) -> None:
        """Wait until a question may go out; from then on `expected_bytes` count until `arrived`."""
        if not (shares.in_force and (self.full or self._line)):
            self._count(group, expected_bytes)
            return
        asker = asyncio.get_running_loop().create_future()
        entry = self._line.push((site_of(group.share_key),), Entry((group, asker, expected_bytes)))
        try:
            await asker
        except BaseException:
            if not self._line.remove(entry):
                self.arrived(group)
            raise

    def arrived(self, group: ListGroup) -> None:
        """Count a question no more: its list is there, or never will be. A second call does nothing."""
        self._asked_bytes -= self._asked.pop(group, 0)
        self.let_ask()

    def count_instead_of(self, other: "HeapCrowd", group: ListGroup) -> None:
        """Count a question that passed at another crowd with those of this one."""
        self._count(group, other._asked[group])
        other.arrived(group)

    def let_wait(self, group: ListGroup) -> None:
        """Raise AskAgain for a list that has had no turn, while those that wait hold their part of heap memory."""
        if self.full and not group.unproven:
            raise AskAgain

    @contextmanager
    def with_one(self, heap_bytes: int) -> Iterator[None]:
        """Count a list that waits with so much heap memory."""
        self._waiting_bytes += heap_bytes
        try:
            yield
        finally:
            self._waiting_bytes -= heap_bytes
            self.let_ask()

    def let_ask(self, *, all_of_them: bool = False) -> None:
        """Wake the questions that may go out: as many as there is room for, or all."""
        while self._line and (all_of_them or not self.full):
            group, asker, expected_bytes = self._line.pop().item
            if not asker.done():
                self._count(group, expected_bytes)
                asker.set_result(None)

    def _passes_the_part(self, count: int) -> bool:
        return count * self._part > self._heap.limit > 0

    def _count(self, group: ListGroup, expected_bytes: int) -> None:
        if expected_bytes:
            self._asked_bytes += expected_bytes - self._asked.get(group, 0)
            self._asked[group] = expected_bytes
