"""Bound the topic-list questions at each broker: how many are in flight, and what their answers hold of the heap.

Estimates of questions take half of the heap limit at most. While several brokers are asked, the answers that arrive
from one of them take a quarter at most, or one larger answer alone (docs/adr/0036).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.semaphore import AsyncSemaphore
from limiter.statistics import LimiterStatistics
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config

# Brokers come and go behind a name: with so many queues, those that nothing waits in are dropped.
MANY_QUEUES: Final = 64
# Answers for unproven readers: those asked for take this part of heap memory, and as much those that wait for a share.
UNPROVEN_HEAP_PART: Final = 4
# Estimates of one broker's questions take this part.
ESTIMATES_HEAP_PART: Final = 2
# Answers that arrive from one broker of several take this part.
ANSWERS_HEAP_PART: Final = 4
# No room is kept for a broker that was not asked for so long: the broker may have left its name.
LATELY_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class TopicListLimits:
    """The times and sizes of the topic-list path, in seconds and bytes; which requests share answers, and memory."""

    request_timeout_seconds: float
    max_answer_bytes: int
    max_outstanding_per_broker: int
    coalescing: bool
    share_by_key: bool
    key_cap_percent: int
    shared_by_role: bool = False

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            request_timeout_seconds=config.seconds(Config.topic_list_request_timeout_millis),
            max_answer_bytes=config.topic_list_answer_limit_bytes,
            max_outstanding_per_broker=config.topic_list_max_outstanding_per_broker,
            coalescing=config.topic_list_coalescing_enabled,
            share_by_key=config.shares_by_key,
            key_cap_percent=config.key_percent,
            shared_by_role=config.topic_list_shared_by == "role",
        )


class BrokerQueue:
    """The bounds on one broker: questions in flight, and the heap estimates reserved for them (half the heap limit).

    A waiter for a reservation waits for heap memory, with the heap's timeout, queue bound and statistics. A wait for a
    slot in flight ends with the request's clock; `maxConcurrentLookupRequests` bounds how many requests wait. Questions
    of unproven readers wait for `unproven` before anything else: for as much of a quarter of the heap limit as their
    answers will probably take (`proxy.requests.topic_lists.unproven`). `answers` is the room for what arrives: a number
    beside the heap permits, and those that wait for room wait for heap memory.
    """

    def __init__(self, broker: BrokerAddress, limits: TopicListLimits, heap: AsyncSemaphore, clock: Clock) -> None:
        self.in_flight = AsyncSemaphore(
            f"questions to {broker}",
            limits.max_outstanding_per_broker,
            max_queue=0,
            timeout_seconds=math.inf,
            clock=clock,
        )
        self.unproven = AsyncSemaphore(
            f"questions of unproven readers to {broker}",
            0,
            max_queue=0,
            timeout_seconds=math.inf,
            clock=clock,
        )
        self.reservations = heap.share(f"heap on {broker}", 1 / ESTIMATES_HEAP_PART)
        self.answers = heap.share(f"answers of {broker}", 1 / ANSWERS_HEAP_PART)
        self.asked_at = clock.time()
        self.apply(limits, heap)

    @property
    def idle(self) -> bool:
        """Return whether nothing waits on this broker."""
        return not any(semaphore.held or semaphore.queue_size for semaphore in self._semaphores)

    @property
    def _semaphores(self) -> tuple[AsyncSemaphore, ...]:
        return self.in_flight, self.unproven, self.reservations, self.answers

    @property
    def heap_lines(self) -> tuple[AsyncSemaphore, ...]:
        """Return the lines whose waiters wait for heap memory."""
        return self.reservations, self.answers

    def apply(self, limits: TopicListLimits, heap: AsyncSemaphore) -> None:
        """Apply changed limits."""
        self.in_flight.set_limit(limits.max_outstanding_per_broker)
        self.unproven.set_limit(max(1, heap.limit // UNPROVEN_HEAP_PART) if heap.limit > 0 else 0)
        for share in self.heap_lines:
            share.follow()
        # Each that waits here has its connection to the broker paused: it was let in, and must not be refused now.
        self.answers.max_queue = 0
        for semaphore in self._semaphores:
            semaphore.set_sharing(limits.share_by_key, limits.key_cap_percent)


class BrokerQueues:
    """The queues of all brokers that were asked lately, and the limits of the topic-list path."""

    def __init__(self, clock: Clock, limiter: AsyncDualMemoryLimiter, limits: TopicListLimits) -> None:
        self._clock = clock
        self._limiter = limiter
        self.limits = limits
        self._queues: dict[BrokerAddress, BrokerQueue] = {}
        self._past: list[LimiterStatistics] = []

    def apply(self, limits: TopicListLimits) -> None:
        """Apply changed limits, those of the heap included."""
        self.limits = limits
        for queue in self._queues.values():
            queue.apply(limits, self._limiter.heap)

    def queue(self, broker: BrokerAddress) -> BrokerQueue:
        """Return the bounds of the questions to `broker`."""
        queue = self._queues.get(broker)
        if queue is None:
            if len(self._queues) >= MANY_QUEUES:
                self._forget_idle_queues()
            queue = BrokerQueue(broker, self.limits, self._limiter.heap, self._clock)
            self._queues[broker] = queue
        queue.asked_at = self._clock.time()
        return queue

    def awaited(self, queue: BrokerQueue) -> bool:
        """Return whether anybody waits for heap memory, or for room, that an answer of this broker may hold."""
        return self._limiter.heap.short or any(line.short for line in queue.heap_lines)

    def several(self, queue: BrokerQueue) -> bool:
        """Return whether other brokers were asked lately: a broker alone takes no memory from others."""
        since = self._clock.time() - LATELY_SECONDS
        return any(other is not queue and other.asked_at >= since for other in self._queues.values())

    def all(self) -> Mapping[BrokerAddress, BrokerQueue]:
        """Return the queues of the brokers that were asked lately."""
        return self._queues

    def _forget_idle_queues(self) -> None:
        for broker, queue in list(self._queues.items()):
            if queue.idle:
                del self._queues[broker]
                self._past.extend(line.statistics() for line in queue.heap_lines)
        # The counts of dropped queues stay counted.
        self._past = [sum_of_waits(self._past)]

    @property
    def short(self) -> bool:
        """Return whether anybody waits for heap memory that others hold, on a broker or in the heap's own queue."""
        return self._limiter.heap.short or any(queue.reservations.short for queue in self._queues.values())

    @property
    def heap_queue_size(self) -> int:
        """Return the number of waiters for heap memory, on brokers and in the heap's own queue."""
        waiting = self._limiter.heap.queue_size
        for queue in self._queues.values():
            waiting += sum(line.queue_size for line in queue.heap_lines)
        return waiting

    def statistics(self) -> LimiterStatistics:
        """Return the statistics of heap memory, with the waiters on brokers added."""
        heap = self._limiter.heap.statistics()
        lines = (line.statistics() for queue in self._queues.values() for line in queue.heap_lines)
        return sum_of_waits([heap, *self._past, *lines])


def sum_of_waits(lines: Sequence[LimiterStatistics]) -> LimiterStatistics:
    """Return the first statistics, with the waiters of the others added."""
    return replace(
        lines[0],
        queue_size=sum(line.queue_size for line in lines),
        queued=sum(line.queued for line in lines),
        timed_out=sum(line.timed_out for line in lines),
        rejected=sum(line.rejected for line in lines),
        cancelled=sum(line.cancelled for line in lines),
    )
