"""Requests to brokers: what a request connection calls when the answer arrives, and requests with small answers.

A request lives from the moment it is written until the broker's answer has passed or the connection is gone, even if
the client that wanted the answer has left: the broker works on it all the same. The methods of a request are called by
`BrokerConnection`, in order, and never wait.
"""

from enum import Enum
from typing import Protocol

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.frames import FrameHead
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SlabBody
from proxy.core.errors import RequestFailed


class Decision(Enum):
    """The treatment of an answer whose head has arrived when there is no sink for its body (yet)."""

    WAIT = "stop reading until the request decides"
    SKIP = "pass over the answer without storing it"


class BrokerRequest(Protocol):
    """A request on a broker connection; from `asked_at` on its broker's silence counts."""

    asked_at: float

    def on_response_head(self, head: FrameHead) -> SlabBody | Decision:
        """Decide about an answer whose size has become known."""

    def answered(self, command: pb.BaseCommand) -> None:
        """Called with a whole small answer."""

    def body_complete(self) -> None:
        """Called when the sink has got its last byte."""

    def failed(self, error: Exception) -> None:
        """Called when there will be no answer. Also after `on_response_head`, if the connection breaks."""


class SmallRequest:
    """A request whose answer is small; a subclass hears in `ended` how it ended.

    An ERROR from the broker, and an answer of another kind than `expected`, become RequestFailed.
    """

    __slots__ = ("_expected", "asked_at", "under_way")

    def __init__(self, expected: CommandType) -> None:
        self._expected = expected
        self.asked_at = 0.0
        # A question has been asked whose answer may come.
        self.under_way = True

    def ended(self, outcome: pb.BaseCommand | Exception) -> None:
        """Called once, when the broker has answered or can no longer, even if nobody waits for it any more.

        Called from the connection's turn, which belongs to others as well: must not raise.
        """
        raise NotImplementedError

    def on_response_head(self, head: FrameHead) -> SlabBody | Decision:
        """Refuse an answer that is too large for the request."""
        self.failed(
            RequestFailed(ServerError.UnknownError, f"the broker's answer of {head.frame_bytes} bytes is too large")
        )
        return Decision.SKIP

    def answered(self, command: pb.BaseCommand) -> None:
        """Pass the answer on."""
        self._end(command if command.type == self._expected else unexpected_answer(command))

    def body_complete(self) -> None:
        """Raise: there was no sink."""
        raise AssertionError("a small request gave no sink")

    def failed(self, error: Exception) -> None:
        """Pass the failure on."""
        self._end(error)

    def _end(self, outcome: pb.BaseCommand | Exception) -> None:
        if self.under_way:
            self.under_way = False
            self.ended(outcome)


def unexpected_answer(command: pb.BaseCommand) -> RequestFailed:
    """Return the failure for an ERROR command, or for an answer that fits no request."""
    if command.type == CommandType.ERROR:
        return RequestFailed(command.error.error, command.error.message)
    return RequestFailed(ServerError.UnknownError, f"the broker answered with a command of type {command.type}")
