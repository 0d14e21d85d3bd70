"""Requests to brokers whose answer may be large: memory is admitted when the size is known, before the body is read.

An answer's bytes are kept as they came (`OpaqueAnswer`); the request owns the rule by which they are admitted, and the
asking task waits in `answer`. A client that leaves abandons its request: the answer is passed over when it arrives.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.framing import BodySink
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabPool
from protocol.topic_list import OpaqueAnswer, TopicListAnswer, heap_size
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.request import Decision, unexpected_answer
from proxy.core.errors import OverLimit, RequestFailed
from proxy.core.native import native_class
from proxy.telemetry.events.timeline import NO_TIMELINE, NoTimeline

A = TypeVar("A", bound=OpaqueAnswer)


class NoShare(Exception):
    """An answer was passed over because its client had no share for `memory_bytes`; it may be asked for again."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(f"no share of direct memory for {memory_bytes} bytes")
        self.memory_bytes = memory_bytes


class ShareForAnswer(Protocol):
    """The share of direct memory that a client needs for an answer (`proxy.requests.reader_shares.AnswerShare`)."""

    def try_take(self, size: int, memory_bytes: int) -> bool:
        """Take what an answer of `size` bytes needs if that is possible now, else return False."""


class RoomForAnswer(Protocol):
    """The room that a broker's answers share (`proxy.requests.topic_lists.broker_queues.AnswerRoom`)."""

    def try_take(self, memory_bytes: int) -> bool:
        """Take room for the answer if that is possible now, else return False."""

    async def take(self, memory_bytes: int, timeout_seconds: float) -> None:
        """Wait for room, unless there is some already; raises PermitAcquireError."""


class AdmittedRequest(Generic[A]):
    """A request whose answer of type `expected` becomes an `A` under a permit.

    `on_answer_begun` is called once, as soon as the broker's answer begins or can no longer come.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slabs: SlabPool,
        expected: CommandType,
        max_bytes: int,
        on_answer_begun: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.asked_at = 0.0
        self._slabs = slabs
        self._expected = expected
        self._max_bytes = max_bytes
        self._on_answer_begun: Callable[[], None] | None = on_answer_begun
        self._turn: asyncio.Future[A | FrameHead] = loop.create_future()
        self._answer: A | None = None
        self.abandoned = False
        self._failure: Exception | None = None
        self._admitting: asyncio.Timeout | None = None

    # --- decisions of a subclass -----------------------------------------------------------------

    def try_admit(self, head: FrameHead) -> bool:
        """Take a permit for the answer if that is possible now."""
        raise NotImplementedError

    async def admit(self, head: FrameHead, timeout_seconds: float) -> None:
        """Wait for the answer's memory; raises PermitAcquireError."""
        raise NotImplementedError

    def make(self, head: FrameHead) -> A:
        """Return the sink for the answer."""
        raise NotImplementedError

    def too_large(self, head: FrameHead) -> RequestFailed:
        """Return the failure of an answer that is larger than what may be held."""
        raise NotImplementedError

    def passes_over(self, head: FrameHead) -> Exception | None:
        """Return the failure of an answer that must not be read, and that no other answer waits for; None: read it."""
        return self.too_large(head) if head.rest_bytes > self._max_bytes else None

    @property
    def waits_for_memory(self) -> bool:
        """Return whether the answer has begun and waits for its permit."""
        return self._admitting is not None and self._answer is None

    @property
    def arrived_bytes(self) -> int | None:
        """Return how many bytes of the answer have come; None if the answer is not being read."""
        return None if self._answer is None else self._answer.arrived_bytes

    # --- the asking task's side --------------------------------------------------------------------

    async def answer(self, connection: BrokerConnection, longest_pause_seconds: float, timeout_seconds: float) -> A:
        """Wait for the whole answer; raises RequestFailed, ConnectionClosed or PermitAcquireError.

        `connection` carries the request. The connection stays paused while memory is waited for, at most
        `timeout_seconds`, and `longest_pause_seconds` with the pauses just before.
        """
        try:
            turn = await self._turn
            if isinstance(turn, FrameHead):
                await self._admit(turn, min(timeout_seconds, connection.pause_budget(longest_pause_seconds)))
                self._turn = self._loop.create_future()
                self._answer = self.make(turn)
                connection.accept(self, self._answer)
                turn = await self._turn
        except BaseException:
            self._abandon(connection)
            raise
        assert not isinstance(turn, FrameHead)
        return turn

    async def _admit(self, head: FrameHead, timeout_seconds: float) -> None:
        """Wait for memory, but not for an answer that can no longer come."""
        if self._failure is not None:
            raise self._failure
        try:
            async with asyncio.timeout(None) as self._admitting:
                await self.admit(head, timeout_seconds)
        except TimeoutError:
            assert self._failure is not None
        if self._failure is not None:
            raise self._failure

    def _abandon(self, connection: BrokerConnection) -> None:
        self.abandoned = True
        self._answer = None
        connection.dismiss(self)

    # --- the connection's side --------------------------------------------------------------------

    def on_response_head(self, head: FrameHead) -> BodySink | Decision:
        """Admit the answer, refuse it, or make the connection wait."""
        self._note_begun()
        if self.abandoned or self._turn.cancelled():
            # The asking task is about to end, or gone.
            return Decision.SKIP
        if head.command_type != self._expected:
            self.failed(RequestFailed(ServerError.UnknownError, f"the broker answered with type {head.command_type}"))
            return Decision.SKIP
        failure = self.passes_over(head)
        if failure is not None:
            self.failed(failure)
            return Decision.SKIP
        if self.try_admit(head):
            self._answer = self.make(head)
            return self._answer
        self._turn.set_result(head)
        return Decision.WAIT

    def answered(self, command: pb.BaseCommand) -> None:
        """Fail with the broker's ERROR: every other answer to such a request begins with its head."""
        self.failed(unexpected_answer(command))

    def body_complete(self) -> None:
        """Pass the complete answer to the asking task."""
        if self._answer is not None and not self._turn.done():
            self._turn.set_result(self._answer)
        self._answer = None

    def failed(self, error: Exception) -> None:
        """Pass the failure to the asking task."""
        self._note_begun()
        self._answer = None
        self._failure = error
        if not self._turn.done():
            self._turn.set_exception(error)
            self._turn.exception()
        elif self._admitting is not None and not self.abandoned:
            self._admitting.reschedule(self._loop.time())

    def _note_begun(self) -> None:
        call, self._on_answer_begun = self._on_answer_begun, None
        if call is not None:
            call()


class TopicListRequest(AdmittedRequest[TopicListAnswer]):
    """A request for a topic list; its heap permit, taken for an estimate, grows to what the answer costs.

    Room at the broker comes first, and always before that growth: so nothing that has grown waits for room, and an
    answer with room waits for nothing but the heap (docs/adr/0036).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        slabs: SlabPool,
        max_bytes: int,
        on_answer_begun: Callable[[], None],
        permit: Permit,
        timeline: NoTimeline = NO_TIMELINE,
        room: RoomForAnswer | None = None,
    ) -> None:
        super().__init__(loop, slabs, CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE, max_bytes, on_answer_begun)
        self._permit = permit
        self._timeline = timeline
        self._room = room

    def try_admit(self, head: FrameHead) -> bool:
        """Take room at the broker, and grow the heap permit to the answer's cost, if that is possible now."""
        needed = heap_size(head.rest_bytes)
        admitted = (self._room is None or self._room.try_take(needed)) and self._permit.try_update(needed)
        self._timeline.response_begun(needed, self._permit.size, admitted=admitted)
        return admitted

    async def admit(self, head: FrameHead, timeout_seconds: float) -> None:
        """Wait until there is room at the broker, and until the heap permit could grow to the answer's cost."""
        needed, deadline = heap_size(head.rest_bytes), self._loop.time() + timeout_seconds
        if self._room is not None:
            await self._room.take(needed, timeout_seconds)
        await self._permit.update(needed, timeout_seconds=max(0.0, deadline - self._loop.time()))
        self._timeline.admitted(self._permit.size)

    def make(self, head: FrameHead) -> TopicListAnswer:
        """Return the sink for the list; its names are counted if an event will have their number."""
        scanner = native_class("TopicListScanner")
        return TopicListAnswer(head, self._slabs, counting=self._timeline.counts_names, native=scanner)

    def too_large(self, head: FrameHead) -> RequestFailed:
        """Return the failure of a list above `topicListMaxAnswerBytes`."""
        self._timeline.too_large(heap_size(head.rest_bytes))
        return OverLimit(
            ServerError.NotAllowedError,
            f"topic list of {head.rest_bytes} bytes exceeds the proxy's topicListMaxAnswerBytes ({self._max_bytes}):"
            " ask with a topics pattern, or raise the limit",
            stage="list_too_large",
            key="topicListMaxAnswerBytes",
            asked=head.rest_bytes,
            limit=self._max_bytes,
        )


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
        share: ShareForAnswer,
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
