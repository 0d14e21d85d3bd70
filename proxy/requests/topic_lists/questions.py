"""Ask brokers for topic lists: how many at once, over which connection, and once more if the connection was lost."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.observer import LimiterObserver
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from limiter.statistics import LimiterStatistics
from protocol import commands
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer
from proxy.brokers.admitted_request import TopicListRequest
from proxy.brokers.discovery import BrokerChoice
from proxy.brokers.pool import BrokerPool, PoolKey, Purpose
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config
from proxy.core.errors import FAIL_OVER
from proxy.requests.topic_lists.groups import ListGroup
from proxy.telemetry.counters import Counters
from proxy.telemetry.events.timeline import Part
from proxy.telemetry.refusals import Stage

# Brokers come and go behind a name; from so many on the books of those that nothing waits on are thrown away.
MANY_LANES: Final = 64


@dataclass(frozen=True, slots=True)
class TopicListLimits:
    """The times and sizes of the topic-list path, in seconds and bytes; who shares answers, and who shares memory."""

    request_timeout_seconds: float
    max_answer_bytes: int
    max_outstanding_per_broker: int
    coalescing: bool
    share_by_key: bool
    key_cap_percent: int

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the limits of a configuration."""
        return cls(
            request_timeout_seconds=config.seconds(Config.topic_list_request_timeout_millis),
            max_answer_bytes=config.topic_list_answer_limit_bytes,
            max_outstanding_per_broker=config.topic_list_max_outstanding_per_broker,
            coalescing=config.topic_list_coalescing_enabled,
            share_by_key=config.topic_list_fairness != "fifo",
            key_cap_percent=config.topic_list_max_memory_percent_per_key,
        )


class BrokerQueue:
    """Bound what waits on one broker: questions, and the estimates held for them (half the heap limit).

    Who waits to hold an estimate waits for heap memory, with its timeout, its bound and its books. Waiting for a
    question ends with the request's clock; `maxConcurrentLookupRequests` bounds how many wait.
    """

    def __init__(
        self, broker: BrokerAddress, limits: TopicListLimits, heap: AsyncSemaphore, waits: LimiterObserver, clock: Clock
    ) -> None:
        self.questions = AsyncSemaphore(
            f"questions to {broker}",
            limits.max_outstanding_per_broker,
            max_queue=0,
            timeout_seconds=math.inf,
            clock=clock,
        )
        self.estimates = AsyncSemaphore(
            f"heap on {broker}",
            0,
            max_queue=heap.max_queue,
            timeout_seconds=heap.timeout_seconds,
            clock=clock,
            observer=_WaitsOnly(waits),
        )
        self.apply(limits, heap)

    @property
    def idle(self) -> bool:
        """Tell whether nothing waits on this broker."""
        return not any(line.held or line.queue_size for line in (self.questions, self.estimates))

    def apply(self, limits: TopicListLimits, heap: AsyncSemaphore) -> None:
        """Take over changed limits."""
        self.questions.set_limit(limits.max_outstanding_per_broker)
        self.estimates.set_limit(max(1, heap.limit // 2) if heap.limit > 0 else 0)
        self.estimates.max_queue = heap.max_queue
        self.estimates.timeout_seconds = heap.timeout_seconds
        for semaphore in (self.questions, self.estimates):
            semaphore.set_sharing(limits.share_by_key, limits.key_cap_percent)


class _WaitsOnly:
    """Pass on who waited: the grant of one that did not is counted by the heap itself."""

    def __init__(self, waits: LimiterObserver) -> None:
        self._waits = waits

    def granted(self, wait_seconds: float) -> None:
        if wait_seconds:
            self._waits.granted(wait_seconds)

    def timed_out(self, wait_seconds: float) -> None:
        self._waits.timed_out(wait_seconds)

    def queued(self) -> None:
        """Pass over: the statistics count it."""

    def rejected(self) -> None:
        """Pass over: the statistics count it."""

    def cancelled(self) -> None:
        """Pass over: the statistics count it."""

    def updated(self) -> None:
        """Pass over: an estimate does not change."""

    def released(self) -> None:
        """Pass over: it is not memory that comes back."""


@dataclass(frozen=True, slots=True)
class HeapStatistics:
    """The books of heap memory as the metrics read them."""

    statistics: Callable[[], LimiterStatistics]


class ListQuestions:
    """Put the questions of groups to brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BrokerPool,
        brokers: BrokerChoice,
        limiter: AsyncDualMemoryLimiter,
        heap_waits: LimiterObserver,
        slabs: SlabPool,
        counters: Counters,
        limits: TopicListLimits,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._brokers = brokers
        self._limiter = limiter
        self._heap_waits = heap_waits
        self._slabs = slabs
        self._counters = counters
        self.limits = limits
        self._lanes: dict[BrokerAddress, BrokerQueue] = {}
        self._past: list[LimiterStatistics] = []

    def apply(self, limits: TopicListLimits) -> None:
        """Take over changed limits, those of the heap included."""
        self.limits = limits
        for lanes in self._lanes.values():
            lanes.apply(limits, self._limiter.heap)

    def lanes(self, broker: BrokerAddress) -> BrokerQueue:
        """Give what bounds the questions to `broker`."""
        lanes = self._lanes.get(broker)
        if lanes is None:
            if len(self._lanes) >= MANY_LANES:
                self._forget_idle_lanes()
            lanes = self._lanes[broker] = BrokerQueue(
                broker, self.limits, self._limiter.heap, self._heap_waits, self._loop
            )
        return lanes

    def all_lanes(self) -> Mapping[BrokerAddress, BrokerQueue]:
        """Give what bounds the questions to each broker, those lately asked only."""
        return self._lanes

    def _forget_idle_lanes(self) -> None:
        for broker, lanes in list(self._lanes.items()):
            if lanes.idle:
                del self._lanes[broker]
                self._past.append(lanes.estimates.statistics())
        # What was counted stays counted.
        self._past = [_sum(self._past)]

    @property
    def short(self) -> bool:
        """Tell whether anybody waits for heap memory that others hold, in the line of a broker or in the heap's own."""
        return self._limiter.heap.short or any(lanes.estimates.short for lanes in self._lanes.values())

    @property
    def heap_queue_size(self) -> int:
        """Count those who wait for heap memory, in the line of a broker or in the heap's own."""
        waiting = self._limiter.heap.queue_size
        for lanes in self._lanes.values():
            waiting += lanes.estimates.queue_size
        return waiting

    def heap_statistics(self) -> LimiterStatistics:
        """Give the heap's books with those added who wait for it in the line of their broker."""
        heap = self._limiter.heap.statistics()
        return _sum([heap, *self._past, *(lanes.estimates.statistics() for lanes in self._lanes.values())])

    async def ask(
        self,
        group: ListGroup,
        heap: Permit,
        on_asked: Callable[[], None],
        on_begun: Callable[[], None],
        first_estimate: int,
    ) -> TopicListAnswer:
        """Get the broker's answer; a question whose broker failed is asked once more, of another if there is one.

        `on_asked` is called just before the question is written, `on_begun` when its answer begins or cannot come any
        more. Raises RequestFailed, ConnectionClosed, BrokerUnavailable, TargetRefused or PermitAcquireError.
        """
        group.stands_at(Stage.BROKER_CONNECTION, Part.BROKER)
        key = group.request.namespace
        broker = await self._brokers.usable(group.broker, key)
        try:
            return await self._ask_once(broker, group, heap, on_asked, on_begun)
        except FAIL_OVER:
            group.stands_at(Stage.BROKER_CONNECTION, Part.BROKER)
            broker = await self._brokers.pick(key, avoid=broker)
            self._counters.lists_asked_again += 1
            heap.try_update(first_estimate)
            if group.story is not None:
                group.story.heap_resized(heap.size)
            return await self._ask_once(broker, group, heap, on_asked, on_begun)

    async def _ask_once(
        self,
        broker: BrokerAddress,
        group: ListGroup,
        heap: Permit,
        on_asked: Callable[[], None],
        on_begun: Callable[[], None],
    ) -> TopicListAnswer:
        group.stands_at(Stage.BROKER_BUSY, Part.BROKER)
        questions = self.lanes(broker).questions
        slot = await questions.acquire(1, charge=group.charge(questions, 1))
        begun = partial(_all, slot.release, on_begun)
        question = TopicListRequest(self._loop, self._slabs, self.limits.max_answer_bytes, begun, heap, group.story)
        try:
            group.stage = Stage.BROKER_CONNECTION
            connection = await self._pool.connection(PoolKey(broker, group.principal, Purpose.LISTS))
            request_id = connection.new_request_id()
            on_asked()
            self._counters.list_questions += 1
            connection.ask(question, request_id, commands.get_topics_request(group.request, request_id))
        except BaseException:
            slot.release()
            raise
        group.stands_at(Stage.BROKER, Part.UPSTREAM)
        if group.story is not None:
            group.story.broker = broker
        group.waits_for_memory = lambda: question.waits_for_memory
        longest_wait = self._limiter.heap.timeout_seconds
        try:
            return await question.answer(connection, 2 * longest_wait, longest_wait)
        finally:
            group.question_over()


def _sum(lines: Sequence[LimiterStatistics]) -> LimiterStatistics:
    """Add to the first of some books what waited, and for how many in vain, in the others."""
    return replace(
        lines[0],
        queue_size=sum(line.queue_size for line in lines),
        queued=sum(line.queued for line in lines),
        timed_out=sum(line.timed_out for line in lines),
        rejected=sum(line.rejected for line in lines),
        cancelled=sum(line.cancelled for line in lines),
    )


def _all(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()
