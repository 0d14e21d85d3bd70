"""What can be asked of a broker over a request connection, and what the connection tells the question about its
answer.

A question lives from the moment it is written until the broker's answer has passed or the connection is gone, even if
the client that wanted it has left: the broker works on it all the same. Its methods are called by `BrokerConnection`,
in order, and never wait.
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
    """What to do with an announced answer when there is no sink for it (yet)."""

    WAIT = "stop reading until the question decides"
    SKIP = "pass over the answer without storing it"


class BrokerRequest(Protocol):
    """Follow one request on a broker connection."""

    def announced(self, head: FrameHead) -> BodySink | Decision:
        """Decide about an answer whose size has become known."""

    def answered(self, command: pb.BaseCommand) -> None:
        """Take a whole small answer."""

    def body_complete(self) -> None:
        """Note that the sink given has got its last byte."""

    def failed(self, error: Exception) -> None:
        """Note that there will be no answer. Also called after `announced`, if the connection breaks."""


class SmallRequest:
    """Ask something whose answer is small; `answer` is the broker's command.

    `on_over` is called once, when the broker has answered or can no longer, whoever still waits for it.

    An ERROR from the broker, and an answer of another kind than `expected`, become RequestFailed.
    """

    __slots__ = ("_expected", "_on_over", "answer")

    def __init__(self, loop: asyncio.AbstractEventLoop, expected: CommandType, on_over: Callable[[], None]) -> None:
        self.answer: asyncio.Future[pb.BaseCommand] = loop.create_future()
        self._expected = expected
        self._on_over: Callable[[], None] | None = on_over

    def announced(self, head: FrameHead) -> BodySink | Decision:
        """Refuse an answer too large to be what was asked for."""
        self.failed(
            RequestFailed(ServerError.UnknownError, f"the broker's answer of {head.frame_bytes} bytes is too large")
        )
        return Decision.SKIP

    def answered(self, command: pb.BaseCommand) -> None:
        """Pass the answer to who waits."""
        self._over()
        if command.type != self._expected:
            self.failed(unexpected_answer(command))
        elif not self.answer.done():
            self.answer.set_result(command)

    def body_complete(self) -> None:
        """Never happens: no sink is given."""
        raise AssertionError("a small question gave no sink")

    def failed(self, error: Exception) -> None:
        """Pass the failure to who waits."""
        self._over()
        if not self.answer.done():
            self.answer.set_exception(error)
            # Who asked may be gone: an exception nobody fetches must not be reported as forgotten.
            self.answer.exception()

    def _over(self) -> None:
        call, self._on_over = self._on_over, None
        if call is not None:
            call()


def unexpected_answer(command: pb.BaseCommand) -> RequestFailed:
    """Translate an ERROR command, or an answer that fits no question, into the request's failure."""
    if command.type == CommandType.ERROR:
        return RequestFailed(command.error.error, command.error.message)
    return RequestFailed(ServerError.UnknownError, f"the broker answered with a command of type {command.type}")
