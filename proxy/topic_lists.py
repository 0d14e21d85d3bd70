"""Serve GET_TOPICS_OF_NAMESPACE under memory limits: the slow path of the proxy, as one readable function (PIP-442).

Heap permit for an estimate -> question to the broker -> permit grown to the real size before the body is read ->
decoded while it arrives -> direct permit for the encoded size -> heap permit ends -> written -> direct permit ends.
Every wait ends with the client's connection, with its own timeout, or with the request's clock.
"""

import asyncio
import math
from dataclasses import dataclass
from functools import partial
from typing import Final

from limiter.clock import Clock
from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import TopicListAnswer, heap_size
from proxy.admitted_answers import TopicListQuestion
from proxy.broker_pool import BrokerPool, PoolKey, Purpose
from proxy.counters import Counters
from proxy.errors import (
    ConnectionClosed,
    ProxyError,
    RequestFailed,
    request_failure,
)
from proxy.list_sizes import ListSizes
from proxy.refusals import RefusalLog, Stage
from proxy.request_checks import check_get_topics
from proxy.requester import Requester
from proxy.target import BrokerAddress

OUTCOMES: Final = ("answered", *dict.fromkeys(stage.outcome for stage in Stage), "failed", "cancelled", "asked_again")


@dataclass(frozen=True, slots=True)
class TopicListLimits:
    """The times and sizes of the topic-list path, in seconds and bytes."""

    request_timeout_seconds: float
    max_answer_bytes: int
    max_outstanding_per_broker: int


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
        self.estimates = AsyncSemaphore(
            f"estimates on {broker}",
            max(1, heap.limit // 2) if heap.limit > 0 else 0,
            max_queue=0,
            timeout_seconds=math.inf,
            clock=clock,
        )


class TopicListService:
    """Serve topic-list requests: each gets exactly one answer, or its client is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: BrokerPool,
        limiter: AsyncDualMemoryLimiter,
        slabs: SlabPool,
        sizes: ListSizes,
        counters: Counters,
        refusals: RefusalLog,
        limits: TopicListLimits,
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._limiter = limiter
        self._slabs = slabs
        self._sizes = sizes
        self._counters = counters
        self._refusals = refusals
        self._limits = limits
        self._lanes: dict[BrokerAddress, BrokerLanes] = {}

    async def serve(
        self, client: Requester, broker: BrokerAddress, request: pb.CommandGetTopicsOfNamespace, arrived: float
    ) -> None:
        """Answer one request that came at `arrived` (loop time) with exactly one frame, or find the client gone."""
        exchange = _Exchange(client, broker, request)
        try:
            check_get_topics(request)
            async with asyncio.timeout_at(arrived + self._limits.request_timeout_seconds) as clock:
                await self._exchange(exchange, clock)
            self._counters.list_ended("answered")
        except asyncio.CancelledError:
            self._counters.list_ended("cancelled")
            raise
        except Exception as error:
            if client.gone:
                self._counters.list_ended("cancelled")
                return
            self._fail(exchange, error)

    async def _exchange(self, exchange: "_Exchange", clock: asyncio.Timeout) -> None:
        if clock.when() <= self._loop.time():  # type: ignore[operator]  # set by timeout_at
            # It waited too long for its turn: the broker must not be asked for a client that gave up.
            raise TimeoutError
        lanes = self._broker_lanes(exchange.broker)
        estimate = self._sizes.estimate(exchange.request)
        exchange.stage = Stage.BROKER_BUSY
        with await lanes.estimates.acquire(estimate) as gate:
            exchange.stage = Stage.HEAP
            with await self._limiter.heap.acquire(estimate, key=exchange.request.namespace) as heap:
                await self._answer(exchange, lanes, heap, gate, clock)

    async def _answer(
        self, exchange: "_Exchange", lanes: BrokerLanes, heap: Permit, gate: Permit, clock: asyncio.Timeout
    ) -> None:
        client, key = exchange.client, exchange.request.namespace
        answer = await self._ask(exchange, lanes, heap, gate)
        self._note_answer(exchange, answer)
        prefix = answer.prefix(exchange.request.request_id)
        exchange.stage = Stage.CLIENT_BUSY
        async with client.output.list_lane:
            exchange.stage = Stage.DIRECT
            with await self._limiter.direct.acquire(len(prefix) + answer.size, key=key) as direct:
                # From here the client's own reading decides: a body under way is never cut by the request's clock.
                clock.reschedule(None)
                heap.release()
                # Slab by slab the list leaves, and its permit with it: others may go on before a slow client is done.
                await client.output.send_body(prefix, answer.consume(), partial(_shrink, direct))

    async def _ask(self, exchange: "_Exchange", lanes: BrokerLanes, heap: Permit, gate: Permit) -> TopicListAnswer:
        """Get the broker's answer; a question lost with its connection is asked once more on another."""
        try:
            return await self._ask_once(exchange, lanes, heap, gate)
        except ConnectionClosed:
            self._counters.list_ended("asked_again")
            heap.try_update(self._sizes.initial_bytes)
            return await self._ask_once(exchange, lanes, heap, gate)

    async def _ask_once(self, exchange: "_Exchange", lanes: BrokerLanes, heap: Permit, gate: Permit) -> TopicListAnswer:
        exchange.stage = Stage.BROKER_BUSY
        slot = await lanes.questions.acquire(1)

        def announced() -> None:
            slot.release()
            gate.release()

        question = TopicListQuestion(self._loop, self._slabs, self._limits.max_answer_bytes, announced, heap)
        key = PoolKey(exchange.broker, exchange.client.principal, Purpose.LISTS)
        try:
            connection = await self._pool.connection(key)
            request_id = connection.new_request_id()
            connection.ask(question, request_id, commands.get_topics_request(exchange.request, request_id))
        except BaseException:
            slot.release()
            raise
        exchange.stage, exchange.question = Stage.BROKER, question
        longest_wait = self._limiter.heap.timeout_seconds
        return await question.answer(connection, 2 * longest_wait, longest_wait)

    def _note_answer(self, exchange: "_Exchange", answer: TopicListAnswer) -> None:
        scanner = answer.scanner
        self._counters.list_name_bytes += scanner.name_bytes
        if scanner.changed:
            self._sizes.learn(exchange.request, heap_size(answer.size))
        request_id = exchange.request.request_id
        frame_bytes, accepted = answer.encoded_size(request_id), exchange.client.max_frame_bytes
        if frame_bytes > accepted:
            raise RequestFailed(
                ServerError.NotAllowedError,
                f"topic list of {scanner.topic_count} topics needs a frame of {frame_bytes} bytes, the client accepts"
                f" {accepted}: ask with a topics pattern, or raise maxMessageSize on broker, proxy and client",
            )

    def _fail(self, exchange: "_Exchange", error: Exception) -> None:
        failure, outcome = request_failure(error), "failed"
        if isinstance(error, PermitAcquireError | TimeoutError):
            stage = exchange.stopped_at
            failure = RequestFailed(ServerError.TooManyRequests, stage.refusal)
            outcome = stage.outcome
            semaphore = self._limiter.direct if stage is Stage.DIRECT else self._limiter.heap
            self._refusals.note(error, stage, semaphore, exchange.client.name, exchange.request.namespace)
        elif not isinstance(error, ProxyError):
            self._counters.internal_error(error, "topic list")
        self._counters.list_ended(outcome)
        exchange.client.output.send(commands.error(exchange.request.request_id, failure.code, failure.message))

    def _broker_lanes(self, broker: BrokerAddress) -> BrokerLanes:
        lanes = self._lanes.get(broker)
        if lanes is None:
            lanes = self._lanes[broker] = BrokerLanes(broker, self._limits, self._limiter.heap, self._loop)
        return lanes

    def apply(self, limits: TopicListLimits) -> None:
        """Change the limits; call it after the heap limit has changed. Requests under way keep their clock."""
        self._limits = limits
        heap = self._limiter.heap.limit
        for lanes in self._lanes.values():
            lanes.questions.set_limit(limits.max_outstanding_per_broker)
            lanes.estimates.set_limit(max(1, heap // 2) if heap > 0 else 0)


def _shrink(direct: Permit, left: int) -> None:
    # A permit clamped to the limit counts for less than its list: it keeps what it has until the rest is smaller.
    direct.requested -= left
    if direct.requested < direct.size:
        direct.try_update(direct.requested)


class _Exchange:
    """One request under way, and how far it has come."""

    __slots__ = ("broker", "client", "question", "request", "stage")

    def __init__(self, client: Requester, broker: BrokerAddress, request: pb.CommandGetTopicsOfNamespace) -> None:
        self.client = client
        self.broker = broker
        self.request = request
        self.question: TopicListQuestion | None = None
        self.stage = Stage.CLIENT_BUSY

    @property
    def stopped_at(self) -> Stage:
        """Name what the request waits for: an answer that waits to be read waits for heap memory."""
        growing = self.stage is Stage.BROKER and self.question is not None and self.question.waits_for_memory
        return Stage.HEAP if growing else self.stage
