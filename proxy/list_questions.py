"""Ask brokers for topic lists: how many at once, over which connection, and once more if the connection was lost."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer
from proxy.admitted_answers import TopicListQuestion
from proxy.broker_pool import BrokerPool, PoolKey, Purpose
from proxy.counters import Counters
from proxy.errors import ConnectionClosed
from proxy.list_groups import ListGroup
from proxy.refusals import Stage
from proxy.target import BrokerAddress


@dataclass(frozen=True, slots=True)
class TopicListLimits:
    """The times and sizes of the topic-list path, in seconds and bytes; who shares answers, and who shares memory."""

    request_timeout_seconds: float
    max_answer_bytes: int
    max_outstanding_per_broker: int
    coalescing: bool
    share_by_key: bool
    key_cap_percent: int


class BrokerLanes:
    """Bound what waits on one broker: questions, and the estimates held for them (half the heap limit).

    Waiting here ends with the request's clock; `maxConcurrentLookupRequests` bounds how many wait.
    """

    def __init__(self, broker: BrokerAddress, limits: TopicListLimits, heap: AsyncSemaphore, clock: Clock) -> None:
        self.questions = AsyncSemaphore(
            f"questions to {broker}",
            limits.max_outstanding_per_broker,
            max_queue=0,
            timeout_seconds=math.inf,
            clock=clock,
        )
        self.estimates = AsyncSemaphore(f"estimates on {broker}", 0, max_queue=0, timeout_seconds=math.inf, clock=clock)
        self.apply(limits, heap.limit)

    def apply(self, limits: TopicListLimits, heap_limit: int) -> None:
        """Take over changed limits."""
        self.questions.set_limit(limits.max_outstanding_per_broker)
        self.estimates.set_limit(max(1, heap_limit // 2) if heap_limit > 0 else 0)
        for semaphore in (self.questions, self.estimates):
            semaphore.set_sharing(limits.share_by_key, limits.key_cap_percent)


class ListQuestions:
    """Put the questions of groups to brokers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BrokerPool,
        limiter: AsyncDualMemoryLimiter,
        slabs: SlabPool,
        counters: Counters,
        limits: TopicListLimits,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._limiter = limiter
        self._slabs = slabs
        self._counters = counters
        self.limits = limits
        self._lanes: dict[BrokerAddress, BrokerLanes] = {}

    def apply(self, limits: TopicListLimits) -> None:
        """Take over changed limits, those of the heap included."""
        self.limits = limits
        for lanes in self._lanes.values():
            lanes.apply(limits, self._limiter.heap.limit)

    def lanes(self, broker: BrokerAddress) -> BrokerLanes:
        """Give what bounds the questions to `broker`."""
        lanes = self._lanes.get(broker)
        if lanes is None:
            lanes = self._lanes[broker] = BrokerLanes(broker, self.limits, self._limiter.heap, self._loop)
        return lanes

    async def ask(
        self,
        group: ListGroup,
        heap: Permit,
        on_asked: Callable[[], None],
        on_begun: Callable[[], None],
        first_estimate: int,
    ) -> TopicListAnswer:
        """Get the broker's answer; a question lost with its connection is asked once more on another.

        `on_asked` is called just before the question is written, `on_begun` when its answer begins or cannot come any
        more. Raises RequestFailed, ConnectionClosed, BrokerUnavailable, TargetRefused or PermitAcquireError.
        """
        try:
            return await self._ask_once(group, heap, on_asked, on_begun)
        except ConnectionClosed:
            self._counters.list_ended("asked_again")
            heap.try_update(first_estimate)
            return await self._ask_once(group, heap, on_asked, on_begun)

    async def _ask_once(
        self, group: ListGroup, heap: Permit, on_asked: Callable[[], None], on_begun: Callable[[], None]
    ) -> TopicListAnswer:
        group.stage = Stage.BROKER_BUSY
        slot = await self.lanes(group.broker).questions.acquire(1, claim=group.claim())
        begun = partial(_all, slot.release, on_begun)
        question = TopicListQuestion(self._loop, self._slabs, self.limits.max_answer_bytes, begun, heap)
        try:
            connection = await self._pool.connection(PoolKey(group.broker, group.principal, Purpose.LISTS))
            request_id = connection.new_request_id()
            on_asked()
            self._counters.list_questions += 1
            connection.ask(question, request_id, commands.get_topics_request(group.request, request_id))
        except BaseException:
            slot.release()
            raise
        group.stage = Stage.BROKER
        group.waits_for_memory = lambda: question.waits_for_memory
        longest_wait = self._limiter.heap.timeout_seconds
        try:
            return await question.answer(connection, 2 * longest_wait, longest_wait)
        finally:
            group.question_over()


def _all(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()
