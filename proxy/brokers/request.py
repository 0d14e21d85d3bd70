"""Requests to brokers: what a request connection calls when the answer arrives, and requests with small answers.

A request lives from the moment it is written until the broker's answer has passed or the connection is gone, even if
the client that wanted the answer has left: the broker works on it all the same. The methods of a request are called by
`BrokerConnection`, in order, and never wait.
"""

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.framing import BodySink
from protocol.pb import PulsarApi_pb2 as pb
from proxy.core.errors import RequestFailed


class Decision(Enum):
    """The treatment of an answer whose head has arrived when there is no sink for its body (yet)."""

    WAIT = "stop reading until the request decides"
    SKIP = "pass over the answer without storing it"


class BrokerRequest(Protocol):
    """A request on a broker connection."""

    def on_response_head(self, head: FrameHead) -> BodySink | Decision:
        """Decide about an answer whose size has become known."""

    def answered(self, command: pb.BaseCommand) -> None:
        """Called with a whole small answer."""

    def body_complete(self) -> None:
        """Called when the sink has got its last byte."""

    def failed(self, error: Exception) -> None:
        """Called when there will be no answer. Also after `on_response_head`, if the connection breaks."""


class SmallRequest:
    """A request whose answer is small; `answer` is the broker's command.

    `on_over` is called once, when the broker has answered or can no longer, even if nobody waits for it any more.

    An ERROR from the broker, and an answer of another kind than `expected`, become RequestFailed.
    """

    __slots__ = ("_expected", "_on_over", "answer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expected: CommandType, on_over: Callable[[], None]) -> None:
        self.answer: asyncio.Future[pb.BaseCommand] = loop.create_future()
        self._expected = expected
        self._on_over: Callable[[], None] | None = on_over

    def on_response_head(self, head: FrameHead) -> BodySink | Decision:
        """Refuse an answer that is too large for the request."""
        self.failed(
            RequestFailed(ServerError.UnknownError, f"the broker's answer of {head.frame_bytes} bytes is too large")
        )
        return Decision.SKIP

    def answered(self, command: pb.BaseCommand) -> None:
        """Pass the answer to the asking task."""
        self._over()
        if command.type != self._expected:
            self.failed(unexpected_answer(command))
        elif not self.answer.done():
            self.answer.set_result(command)

    def body_complete(self) -> None:
        """Raise: there was no sink."""
        raise AssertionError("a small request gave no sink")

    def failed(self, error: Exception) -> None:
        """Pass the failure to the asking task."""
        self._over()
        if not self.answer.done():
            self.answer.set_exception(error)
            # The asking task may be gone: an exception that nobody fetches must not be reported as forgotten.
            self.answer.exception()

    def _over(self) -> None:
        call, self._on_over = self._on_over, None
        if call is not None:
            call()


def unexpected_answer(command: pb.BaseCommand) -> RequestFailed:
    """Return the failure for an ERROR command, or for an answer that fits no request."""
    if command.type == CommandType.ERROR:
        return RequestFailed(command.error.error, command.error.message)
    return RequestFailed(ServerError.UnknownError, f"the broker answered with a command of type {command.type}")
