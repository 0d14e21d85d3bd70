"""Topic lists of unproven readers: their shares of direct memory (`proxy.requests.reader_shares`), and heap memory.

Rules:
- Requests of unproven and of proven readers never form one group, so that no proven reader waits for a share.
- Lists that wait for a share hold heap memory. While they hold a quarter of the heap limit, no more questions of
  unproven readers go to brokers, and the answers that are under way from one broker take another quarter at most: a
  list of unknown size counts as the average list. So heap memory is left for those that read, too.
"""

import asyncio
from collections.abc import Hashable, Sequence
from typing import Final

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import PermitAcquireError
from limiter.observer import LimiterObserver
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from limiter.statistics import LimiterStatistics
from proxy.net.output import Output
from proxy.requests.reader_shares import ReaderShares
from proxy.requests.topic_lists.broker_queues import UNPROVEN_HEAP_PART, BrokerQueue, WaitsOnly, sum_of_waits
from proxy.requests.topic_lists.groups import GroupMember, ListGroup
from proxy.telemetry.events.timeline import TimelineStage
from proxy.telemetry.refusals import Stage

# Before the first answer a list counts as 10,000 names of 100 bytes.
FIRST_AVERAGE_BYTES: Final = 1024 * 1024
# The average moves by this part of the difference to the next list.
_AVERAGE_PART: Final = 8


class UnprovenReaders:
    """The share of direct memory for unproven readers; `percent` of the limit, 100: there is no such rule."""

    def __init__(self, limiter: AsyncDualMemoryLimiter, waits: LimiterObserver, clock: Clock, percent: int) -> None:
        self._limiter = limiter
        self.shares = ReaderShares(limiter.direct, WaitsOnly(waits), clock)
        self._waiting_heap_bytes = 0
        self._average_bytes = FIRST_AVERAGE_BYTES
        self._askers: dict[ListGroup, asyncio.Future[None]] = {}
        self.apply(percent)

    @property
    def share(self) -> AsyncSemaphore:
        """Return the share of direct memory, which schemas take part in."""
        return self.shares.semaphore

    def apply(self, percent: int) -> None:
        """Apply a changed share, or changed limits of direct memory; held shares stay held."""
        self.shares.apply(percent)
        self._let_ask()

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Serve those that wait for a share as both memories do."""
        self.share.set_sharing(share_by_key, key_cap_percent)

    def holds(self, output: Output, size: int | None, key: Hashable) -> bool:
        """Return whether the rule holds for a client; `size` is what the list will probably have, None if unknown."""
        return self.shares.in_force and self.shares.holds_for_list(output, size, key)

    def learn(self, size: int) -> None:
        """Take the size of a list into the average that lists of unknown size count as."""
        self._average_bytes += (size - self._average_bytes) // _AVERAGE_PART

    async def may_ask(self, group: ListGroup, queue: BrokerQueue, size: int | None) -> None:
        """Wait until a question of unproven readers may be asked; the group has its turn until its answer begins."""
        group.stands_at(Stage.DIRECT, TimelineStage.HEAP)
        expected = self._average_bytes if size is None else size
        group.turn = await queue.unproven.acquire(expected, charge=group.charge(queue.unproven, expected))
        while self._crowded:
            self._askers[group] = asyncio.get_running_loop().create_future()
            try:
                await self._askers[group]
            finally:
                del self._askers[group]

    async def share_for(
        self, group: ListGroup, recipients: Sequence[GroupMember], size: int, heap_bytes: int
    ) -> Permit | None:
        """Return a share for a list of `size` bytes that holds `heap_bytes` meanwhile; None if it needs none."""
        if not self.shares.in_force:
            return None
        if not all(self._holds_for(group, member, size) for member in recipients if not member.left):
            return None
        self._waiting_heap_bytes += heap_bytes
        try:
            return await self.share.acquire(size, charge=group.charge(self.share, size))
        finally:
            self._waiting_heap_bytes -= heap_bytes
            self._let_ask()

    def _holds_for(self, group: ListGroup, member: GroupMember, size: int) -> bool:
        return self.holds(member.client.output, size, group.key_of(member))

    def memory_that_refused(self, error: Exception) -> AsyncSemaphore:
        """Return the share or direct memory itself, whichever refused with `error`."""
        of_share = isinstance(error, PermitAcquireError) and error.limiter == self.share.name
        return self.share if of_share else self._limiter.direct

    @property
    def short(self) -> bool:
        """Return whether anybody waits for direct memory, or for a share of it."""
        return self._limiter.direct.short or self.share.short or bool(self._askers)

    @property
    def waiting(self) -> int:
        """Return the number of lists that wait for a share, and of questions that wait because of those lists."""
        return self.share.queue_size + len(self._askers)

    def statistics(self) -> LimiterStatistics:
        """Return the statistics of direct memory, with the waiters for a share added."""
        return sum_of_waits([self._limiter.direct.statistics(), self.share.statistics()])

    @property
    def _crowded(self) -> bool:
        return self.shares.in_force and self._waiting_heap_bytes * UNPROVEN_HEAP_PART > self._limiter.heap.limit > 0

    def _let_ask(self) -> None:
        if not self._crowded:
            for asker in self._askers.values():
                if not asker.done():
                    asker.set_result(None)
