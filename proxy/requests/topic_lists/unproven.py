"""Topic lists of unproven readers: their shares of direct memory (`proxy.requests.reader_shares`), and heap memory.

Rules:
- Requests of unproven and of proven readers never form one group, so that no proven reader waits for a share.
- Lists that wait for a share hold heap memory. While they hold a quarter of the heap limit, no more questions of
  unproven readers go to brokers, and the answers that are under way from one broker take another quarter at most: a
  list of unknown size counts as the average list. So heap memory is left for those that read, too.
- Where a group would wait, its clients get a PING (`proxy.requests.reader_shares`). If one of them answers, the group
  goes on at once, with those awake: while their lists that wait hold an eighth of the heap limit, no more of their
  questions go out. Clients that join a group which waits get a PING, too.
- A client may have a second list under way. While second lists that wait behind their client's first hold an eighth of
  the heap limit, no more questions for such lists go out, unless the client answers a PING. Second lists of clients
  that are awake have a sixteenth of their own: such a list may wait for as long as its client reads the first, and
  first lists of others must not wait for that. A first list that its client's next one has overtaken counts with second
  lists, or is asked for again as a second one.
- Wherever a list waits, it counts with those whose question had a turn as its own had, until it has a share.
- A question of a proven reader, or for a list that the send buffer has room for, needs no turn. If its list has to wait
  for a share after all, and those that wait hold their part of heap memory, the list is dropped, and its question is
  asked again with a turn: what a client does after its question must not fill heap memory.
- A group whose client has answered within the last second needs no second PING before its memory: one for the question
  serves both, and a client that has stood still since loses its share as soon as it has it.
"""

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from limiter.statistics import LimiterStatistics
from proxy.core.counters import gauge
from proxy.net.output import Output
from proxy.requests.reader_shares import Call, ReaderShares
from proxy.requests.topic_lists.broker_queues import UNPROVEN_HEAP_PART, BrokerQueue, sum_of_waits
from proxy.requests.topic_lists.groups import GroupMember, ListGroup
from proxy.requests.topic_lists.heap_crowds import AskAgain, HeapCrowd
from proxy.telemetry.events.timeline import Step

if TYPE_CHECKING:
    from proxy.net.spill.space import SpillSpace

# Before the first answer a list counts as 10,000 names of 100 bytes.
FIRST_AVERAGE_BYTES: Final = 1024 * 1024
# Lists of clients that are awake and wait for a share may have this part of heap memory.
AWAKE_HEAP_PART: Final = 8
# Lists that wait behind an earlier list of their own client may have this part, if no client of theirs is proven.
BEHIND_HEAP_PART: Final = 8
# Such lists of clients that are awake have this part beside the part for those awake.
AWAKE_BEHIND_HEAP_PART: Final = 16
# A PONG says for so long that its client reads: a share of those awake ends when its client stands still as long.
AWAKE_SECONDS: Final = 1.0
# So many members of a group are looked at in an iteration of the loop, some 5 us each.
MEMBERS_AT_ONCE: Final = 64
T = TypeVar("T")
# The average moves by this part of the difference to the next list, if the list is larger; it falls by this part of
# itself in ten seconds, at most.
_AVERAGE_PART: Final = 8
_FALL_SECONDS: Final = 10.0
HELD_BYTES: Final = gauge(
    "lists_unproven_readers_bytes",
    "Direct memory that lists and schemas of clients hold which have not shown that they read "
    "(topicListUnprovenReadersMemoryPercent).",
    "bytes",
)
WAITING: Final = gauge(
    "lists_unproven_readers_waiting", "Requests of such clients that wait for their share of direct memory."
)


class UnprovenReaders:
    """The share of direct memory for unproven readers; `percent` of the limit, 100: there is no such rule."""

    def __init__(
        self, limiter: AsyncDualMemoryLimiter, clock: Clock, percent: int, disk: "SpillSpace | None" = None
    ) -> None:
        self._limiter = limiter
        self._clock = clock
        self.shares = ReaderShares(limiter.direct, disk)
        self._average_bytes = FIRST_AVERAGE_BYTES
        # The least average until then.
        self._least_average_bytes, self._least_until = FIRST_AVERAGE_BYTES, -math.inf
        self._crowd = HeapCrowd(limiter.heap, UNPROVEN_HEAP_PART)
        self._awake_crowd = HeapCrowd(limiter.heap, AWAKE_HEAP_PART)
        self._behind_crowd = HeapCrowd(limiter.heap, BEHIND_HEAP_PART)
        self._awake_behind_crowd = HeapCrowd(limiter.heap, AWAKE_BEHIND_HEAP_PART)
        self._calls: dict[ListGroup, Call] = {}
        self.apply(percent)

    def most_owed(self) -> tuple[int | None, int | None, bool]:
        """Return how much may be owed, how much lists behind may hold, and whether only a share of those awake lacks.

        See `proxy.net.write_watch.MostOwed`. Where direct memory itself is full, shares that go on help nobody.
        """
        heap = self._limiter.heap
        behind = heap.limit // UNPROVEN_HEAP_PART if self.shares.in_force and heap.limit > 0 else None
        return self.shares.most_owed, behind, self.shares.awake.short and not self._limiter.direct.short

    @property
    def share(self) -> AsyncSemaphore:
        """Return the share of direct memory, which schemas take part in."""
        return self.shares.semaphore

    def apply(self, percent: int) -> None:
        """Apply a changed share, or changed limits of direct memory; held shares stay held."""
        self.shares.apply(percent)
        for crowd in self._crowds:
            crowd.let_ask(all_of_them=not self.shares.in_force)

    def set_sharing(self, share_by_key: bool, key_cap_percent: int) -> None:
        """Serve those that wait for a share as both memories do."""
        for share in (self.share, self.shares.awake):
            share.set_sharing(share_by_key, key_cap_percent)

    def holds(self, output: Output, size: int | None) -> bool:
        """Return whether the rule holds for a client; `size` is what the list will probably have, None if unknown."""
        return self.shares.in_force and self.shares.holds_for_list(output, size)

    def learn(self, size: int, *, known: bool, chosen: bool) -> None:
        """Take the size of a list into the average that lists of unknown size count as.

        Too small an average lets out more questions of unproven readers than heap memory has room for, and a client
        chooses what it asks for. So a list whose size was `known` does not count again, and a list whose names were
        `chosen` by a pattern never makes the average smaller. Other lists below the average move it by less, the
        smaller they are, so that no number of tiny lists makes it small, and all of them together by an eighth in ten
        seconds. A larger list counts at once.
        """
        average = self._average_bytes
        if known or (chosen and size < average):
            return
        weight = min(1.0, size / average) ** 2
        moved = average + int(weight * (size - average) / _AVERAGE_PART)
        if moved < average:
            now = self._clock.time()
            if now >= self._least_until:
                self._least_average_bytes = average - average // _AVERAGE_PART
                self._least_until = now + _FALL_SECONDS
            moved = max(moved, min(average, self._least_average_bytes))
        self._average_bytes = max(1, moved)

    async def may_ask(self, group: ListGroup, queue: BrokerQueue, size: int | None) -> None:
        """Wait until a question of unproven readers may be asked; the group has its turn until its answer begins."""
        group.stands_at(Step.TURN)
        while True:
            if self._is_second_too_many(group):
                await self._unless_awake(group, self._second_passed(group))
            if await self._take_turn(group, queue, size) or not self._is_second_too_many(group):
                return
            # Others came behind their clients' lists while this group waited for its turn, which a first list may have.
            group.end_turn()

    def _is_second_too_many(self, group: ListGroup) -> bool:
        full = group.behind and self._behind_crowd.full and self.shares.in_force
        return full and not self._is_awake(group)

    def _is_awake(self, group: ListGroup) -> bool:
        return self._clock.time() < group.awake_until

    async def _take_turn(self, group: ListGroup, queue: BrokerQueue, size: int | None) -> bool:
        """Wait for a turn; return whether it is one of those awake, who have a part for second lists of their own."""
        expected = self._average_bytes if size is None else size
        group.turn = group.try_acquire(queue.unproven, expected)
        if group.turn is not None and not self._crowd.full and not self._awake_crowd.full:
            return False
        if not self._is_awake(group) and await self._unless_awake(group, self._turn_of(group, queue, expected)):
            return False
        # A client of the group reads: its question waits for no turn of those that may not.
        group.end_turn()
        crowd = self._awake_behind_crowd if group.behind else self._awake_crowd
        await crowd.passed(group, self.shares, expected)
        return True

    async def _second_passed(self, group: ListGroup) -> bool:
        await self._behind_crowd.passed(group, self.shares)
        return True

    def question_over(self, group: ListGroup) -> None:
        """Count the list of a question no more: the list is there, or never will be."""
        self._awake_crowd.arrived(group)
        self._awake_behind_crowd.arrived(group)

    async def behind(self, group: ListGroup, heap_bytes: int, ready: Coroutine[Any, Any, None]) -> None:
        """Wait until a client has taken its earlier lists, and count the heap memory of the next one meanwhile.

        Raises AskAgain for a first list that another of its client has overtaken, if there is no room for second lists.
        """
        if not group.behind:
            awake = self._awake_crowd.counts(group)
            seconds = self._awake_behind_crowd if awake else self._behind_crowd
            if seconds.full:
                ready.close()
                self.question_over(group)
                group.behind = True
                raise AskAgain
            if awake:
                seconds.count_instead_of(self._awake_crowd, group)
        with self._behind_crowd.with_one(heap_bytes):
            await ready

    async def _turn_of(self, group: ListGroup, queue: BrokerQueue, expected: int) -> bool:
        if group.turn is None:
            group.turn = await group.acquire(queue.unproven, expected)
        await self._crowd.passed(group, self.shares)
        return True

    async def _unless_awake(self, group: ListGroup, wait: Coroutine[Any, Any, T]) -> T | None:
        """Return what `wait` brings, or None if a client of the group answers a PING before."""
        call = self._calls[group] = Call(member.client.output for member in group.members)
        try:
            given = await call.unless_answered(wait)
        finally:
            del self._calls[group]
        if given is None:
            group.awake_until = self._clock.time() + AWAKE_SECONDS
        return given

    def joined(self, group: ListGroup, member: GroupMember) -> None:
        """Send a PING to a client that joins a group which waits."""
        call = self._calls.get(group)
        if call is not None:
            call.add(member.client.output)

    async def share_for(
        self, group: ListGroup, recipients: Sequence[GroupMember], size: int, heap_bytes: int
    ) -> Permit | None:
        """Return a share for a list of `size` bytes that holds `heap_bytes` meanwhile; None if it needs none.

        Raises AskAgain if the list would have to wait, has had no turn, and such lists hold their part of heap memory.
        """
        if not self.shares.in_force:
            return None
        if not await self._all_unproven(recipients, size):
            return None
        counted = self.shares.share_bytes(size, group.key_of_first)
        if (at_once := group.try_acquire(self.share, counted, of_share=True)) is not None:
            return at_once
        # Wherever a list waits it counts with those that had a turn as it had: clients that answer late, or whose lists
        # are ready late, must not fill the part that lets first questions of those awake out.
        turn = self._crowd_of(group)
        if not self._is_awake(group):
            self._crowd.let_wait(group)
            with self._crowd.with_one(heap_bytes):
                silent = await self._unless_awake(group, group.acquire(self.share, counted, of_share=True))
                if silent is not None:
                    return silent
                if turn is self._crowd:
                    return await self._awake_share(group, size)
        turn.let_wait(group)
        with turn.with_one(heap_bytes):
            # Until here the question counts: its list may wait with those that are silent until a second PONG.
            self.question_over(group)
            return await self._awake_share(group, size)

    async def _all_unproven(self, recipients: Sequence[GroupMember], size: int) -> bool:
        """Return whether the rule holds for all that have not left; each look may ask the kernel twice."""
        for first in range(0, len(recipients), MEMBERS_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            some = recipients[first : first + MEMBERS_AT_ONCE]
            if not all(self.holds(member.client.output, size) for member in some if not member.left):
                return False
        return True

    def _crowd_of(self, group: ListGroup) -> HeapCrowd:
        """Return the crowd where a question had its turn; those without one count with first lists of those awake."""
        if self._awake_behind_crowd.counts(group):
            return self._awake_behind_crowd
        return self._crowd if group.unproven and not self._awake_crowd.counts(group) else self._awake_crowd

    async def _awake_share(self, group: ListGroup, size: int) -> Permit:
        group.share_ends_when_standing = True
        return await group.acquire(self.shares.awake, size, of_share=True)

    def memory_that_refused(self, error: Exception) -> AsyncSemaphore:
        """Return the share or direct memory itself, whichever refused with `error`."""
        return self.shares.that_refused(error) or self._limiter.direct

    @property
    def short(self) -> bool:
        """Return whether anybody waits for direct memory, or for a share of it."""
        return self._limiter.direct.short or self.shares.short or any(crowd.short for crowd in self._crowds)

    @property
    def waiting(self) -> int:
        """Return the number of lists that wait for a share, and of questions that wait because of those lists."""
        return self.share.queue_size + self.shares.awake.queue_size + self._asking

    def statistics(self) -> LimiterStatistics:
        """Return the statistics of direct memory, with the waiters for a share added."""
        memories = (self._limiter.direct, self.share, self.shares.awake)
        return sum_of_waits([memory.statistics() for memory in memories])

    @property
    def _crowds(self) -> tuple[HeapCrowd, ...]:
        return self._crowd, self._awake_crowd, self._behind_crowd, self._awake_behind_crowd

    @property
    def _asking(self) -> int:
        return sum(crowd.asking for crowd in self._crowds)
