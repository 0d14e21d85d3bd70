"""The lists that wait for a share of direct memory: they hold a part of heap memory before no more questions go out.

Questions that wait for that take turns by network, and go out one by one, each with what its list will probably hold:
a question that has just gone out counts, or all of a crowd would go out while none of its lists is there.
"""

import asyncio
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

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
        # The number of questions that wait.
        self.asking = 0
        # By network: the questions that wait, with what each will count. The network whose turn is next comes first.
        self._lines: dict[Hashable, dict[ListGroup, tuple[asyncio.Future[None], int]]] = {}

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
        if not (shares.in_force and (self.full or self._lines)):
            self._count(group, expected_bytes)
            return
        site = site_of(group.share_key)
        asker = asyncio.get_running_loop().create_future()
        self._lines.setdefault(site, {})[group] = asker, expected_bytes
        self.asking += 1
        try:
            await asker
        except BaseException:
            if not self._leave(site, group):
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
        while self._lines and (all_of_them or not self.full):
            site, line = next(iter(self._lines.items()))
            group, (asker, expected_bytes) = next(iter(line.items()))
            self._leave(site, group)
            if not asker.done():
                self._count(group, expected_bytes)
                asker.set_result(None)

    def _passes_the_part(self, count: int) -> bool:
        return count * self._part > self._heap.limit > 0

    def _count(self, group: ListGroup, expected_bytes: int) -> None:
        if expected_bytes:
            self._asked_bytes += expected_bytes - self._asked.get(group, 0)
            self._asked[group] = expected_bytes

    def _leave(self, site: Hashable, group: ListGroup) -> bool:
        """Take a question out of its network's line, whose turn is over then; return whether it waited."""
        line = self._lines.get(site)
        if line is None or line.pop(group, None) is None:
            return False
        self.asking -= 1
        del self._lines[site]
        if line:
            self._lines[site] = line
        return True
