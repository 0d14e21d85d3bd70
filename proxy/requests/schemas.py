"""Serve GET_SCHEMA: a direct permit covers the answer from before it is read until it is written.

A client that has not shown that it reads takes a share before (`proxy.requests.reader_shares`). Only the answer tells
its size: without a share the answer is passed over, the request waits for one, and the broker is asked again.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from limiter.dual import AsyncDualMemoryLimiter
from limiter.errors import PermitAcquireError
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import OpaqueAnswer, heap_size
from proxy.auth.fairness_key import FairnessKeys, namespace_of
from proxy.brokers.admitted_request import AdmittedRequest
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.pool import PoolKey, Purpose
from proxy.brokers.side import BrokerSide
from proxy.brokers.target import BrokerAddress
from proxy.config.config import Config
from proxy.config.core import Core
from proxy.core.counters import counter
from proxy.core.errors import DIRECT_REFUSAL, FAIL_OVER, ProxyError, RequestFailed, request_failure
from proxy.core.tasks import CoarseDeadlines, TaskClock
from proxy.requests.arriving import ArrivingAnswers
from proxy.requests.client import Client
from proxy.requests.forwarding import FAILED
from proxy.requests.places import Slot
from proxy.requests.reader_shares import AnswerShare, ReaderShares
from proxy.requests.validation import check_get_schema
from proxy.telemetry.refusals import RefusalLog, Stage

GIVEN_UP: Final = counter(
    "schemas_given_up", "Schemas given up because a broker sent them too slowly while others waited for direct memory."
)


class NoShare(Exception):
    """An answer was passed over because its client had no share for `memory_bytes`; it may be asked for again."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(f"no share of direct memory for {memory_bytes} bytes")
        self.memory_bytes = memory_bytes


class SchemaRequest(AdmittedRequest[OpaqueAnswer]):
    """A request for a schema; a direct permit covers the answer from before it is read until it is written.

    An answer whose client has no share is passed over: the answers behind it, of clients that read, wait for no share.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slabs: SlabPool,
        max_bytes: int,
        on_answer_begun: Callable[[], None],
        direct: AsyncSemaphore,
        key: Hashable,
        share: AnswerShare,
    ) -> None:
        super().__init__(loop, slabs, CommandType.GET_SCHEMA_RESPONSE, max_bytes, on_answer_begun)
        self._share = share
        self._direct = direct
        self._key = key
        self.permit: Permit | None = None

    def passes_over(self, head: FrameHead) -> Exception | None:
        """Return the failure of an answer that is too large, or that its client has no share for."""
        failure = super().passes_over(head)
        if failure is None and not self._share.try_take(head.rest_bytes, heap_size(head.rest_bytes)):
            failure = NoShare(heap_size(head.rest_bytes))
        return failure

    def try_admit(self, head: FrameHead) -> bool:
        """Take a direct permit if there is one now."""
        self.permit = self._direct.try_acquire(heap_size(head.rest_bytes), key=self._key)
        return self.permit is not None

    async def admit(self, head: FrameHead, timeout_seconds: float) -> None:
        """Wait for a direct permit."""
        cost = heap_size(head.rest_bytes)
        self.permit = await self._direct.acquire(cost, key=self._key, timeout_seconds=timeout_seconds)

    def make(self, head: FrameHead) -> OpaqueAnswer:
        """Return the sink for the schema."""
        return OpaqueAnswer(head, self._slabs)

    def too_large(self, head: FrameHead) -> RequestFailed:
        """Return the failure of a schema that is larger than a client accepts."""
        return RequestFailed(
            ServerError.NotAllowedError,
            f"schema answer of {head.rest_bytes} bytes exceeds {self._max_bytes} (maxMessageSize)",
        )

    def release(self) -> None:
        """Release the direct permit."""
        if self.permit is not None:
            self.permit.release()


class _Asked(NamedTuple):
    """A client's request on its way: its place among the lookups, its clock, and its share of direct memory."""

    client: Client
    request: pb.CommandGetSchema
    slot: Slot
    clock: TaskClock
    share: AnswerShare


class SchemaService:
    """Forward schema requests and write the broker's answer as it came, under the client's request id."""

    def __init__(
        self,
        core: Core,
        side: BrokerSide,
        limiter: AsyncDualMemoryLimiter,
        slabs: SlabPool,
        fairness_keys: FairnessKeys,
        shares: ReaderShares,
        refusals: RefusalLog,
    ) -> None:
        self._loop = core.loop
        self._pool = side.pool
        self._brokers = side.brokers
        self._limiter = limiter
        self._slabs = slabs
        self._counters = core.counters
        self._refusals = refusals
        self._timeout_seconds = core.config.seconds(Config.topic_list_request_timeout_millis)
        self._fairness_keys = fairness_keys
        self._shares = shares
        self._clocks: CoarseDeadlines[TaskClock] = CoarseDeadlines(core.loop, TaskClock.run_out)
        # Swept once a second (`proxy.app.proxy`).
        self.arriving = ArrivingAnswers("schema", core.counters[GIVEN_UP])

    def apply(self, timeout_seconds: float) -> None:
        """Change the time of requests from now on."""
        self._timeout_seconds = timeout_seconds

    async def serve(self, client: Client, request: pb.CommandGetSchema, slot: Slot) -> None:
        """Answer one request with exactly one frame, or find the client gone."""
        try:
            check_get_schema(request)
            key = self._fairness_keys.share_key(client, namespace_of(request.topic))
            share = self._shares.for_answer(client.output, key)
            try:
                with TaskClock(self._clocks, slot.arrived + self._timeout_seconds) as clock:
                    await self._answer(_Asked(client, request, slot, clock, share))
            finally:
                share.end()
        except Exception as error:
            if not client.gone:
                self._fail(client, request, error)

    async def _answer(self, asked: _Asked) -> None:
        memory_bytes = await self._lacking(asked)
        if memory_bytes is None:
            return
        # A client waits for one share at a time, whatever it asks for.
        async with asked.client.output.answer_line:
            while memory_bytes is not None:
                await asked.share.wait(memory_bytes)
                memory_bytes = await self._lacking(asked)

    async def _lacking(self, asked: _Asked) -> int | None:
        """Answer the request and return None, or return the memory that it needs a share for."""
        try:
            await self._ask(asked)
        except NoShare as passed_over:
            return passed_over.memory_bytes
        return None

    async def _ask(self, asked: _Asked) -> None:
        broker = await self._brokers.pick()
        try:
            await self._exchange(asked, broker)
        except FAIL_OVER:
            if asked.client.gone:
                return
            await self._exchange(asked, await self._brokers.pick(avoid=broker))

    async def _exchange(self, asked: _Asked, broker: BrokerAddress) -> None:
        client, request, slot, clock, share = asked
        connection = await self._pool.connection(PoolKey(broker, client.principal, Purpose.SCHEMAS))
        limiter, slabs = self._limiter, self._slabs
        key = self._fairness_keys.key(client, namespace_of(request.topic))
        question = SchemaRequest(self._loop, slabs, client.max_frame_bytes, slot.share(), limiter.direct, key, share)
        request_id = connection.new_request_id()
        connection.ask(question, request_id, commands.forwarded_request(CommandType.GET_SCHEMA, request, request_id))
        try:
            answer = await self._arrived(question, connection)
            prefix = answer.prefix(request.request_id)
            await client.output.send_body(prefix, answer.consume(), clock=clock, share=share)
        finally:
            question.release()

    async def _arrived(self, question: SchemaRequest, connection: BrokerConnection) -> OpaqueAnswer:
        """Return the whole answer; a broker that sends too slowly while others wait for memory has left it."""
        longest_wait = self._limiter.direct.timeout_seconds
        self.arriving.watch(question, self._memory_awaited)
        try:
            return await question.answer(connection, 2 * longest_wait, longest_wait)
        finally:
            self.arriving.forget(question)

    def _memory_awaited(self) -> bool:
        return self._limiter.direct.short or self._shares.short

    def _fail(self, client: Client, request: pb.CommandGetSchema, error: Exception) -> None:
        self._counters[FAILED]["get schema"] += 1
        failure = request_failure(error)
        if isinstance(error, PermitAcquireError):
            memory = self._shares.that_refused(error) or self._limiter.direct
            self._refusals.note(error, Stage.DIRECT, memory, client.name, request.topic)
            failure = RequestFailed(ServerError.TooManyRequests, DIRECT_REFUSAL)
        elif not isinstance(error, ProxyError | TimeoutError):
            self._counters.internal_error(error, "schema")
        client.output.send(commands.error(request.request_id, failure.code, failure.message))
