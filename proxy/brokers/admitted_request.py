"""Requests to brokers whose answer may be large: memory is admitted when the size is known, before the body is read.

An answer's bytes are kept as they came (`OpaqueAnswer`); the request owns the rule by which they are admitted, and the
asking task waits in `answer`. A client that leaves abandons its request: the answer is passed over when it arrives.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody, SlabPool
from protocol.topic_list import OpaqueAnswer
from proxy.brokers.connection import BrokerConnection
from proxy.brokers.request import Decision, unexpected_answer
from proxy.core.errors import RequestFailed

A = TypeVar("A", bound=OpaqueAnswer)


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

    def on_response_head(self, head: FrameHead) -> SlabBody | Decision:
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
