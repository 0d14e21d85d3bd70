"""A Pulsar client in lookup mode over a plain blocking socket, which books every request it asks.

Rule: each request is reported exactly once, whatever happens: answered, refused, wrong, or ended with its connection.
Imports no Locust: in a process where sockets are patched the same code gives way to the other users by itself.
"""

import itertools
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Protocol, Self

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ProtocolError
from protocol.frames import Frame
from protocol.framing import FrameDecoder
from protocol.pb import PulsarApi_pb2 as pb
from tests.load.books import Exchange, Outcome
from tests.load.judge import Judgement, judge_connected, judge_lookup, judge_pong, judge_topics

CLIENT_VERSION: Final = "load-test"
MOST_ANSWER_BYTES: Final = 256 * 1024 * 1024
KEPT_NAMES: Final = 100
_RECEIVE_BYTES: Final = 64 * 1024
_PACES_PER_SECOND: Final = 10
# Request ids count up from 1, those of PINGs down from -1: these two have none on the wire.
_CONNECT: Final = 0


class Observer(Protocol):
    """Who keeps the books."""

    def asked(self) -> None:
        """Count a request that is about to be sent."""

    def done(self, exchange: Exchange) -> None:
        """Take note of a request's end, or of an answer nobody asked for."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a client treats its socket; 0 stands for no limit. Slow readers have a pace and a small receive buffer."""

    answer_seconds: float = 30.0
    receive_buffer_bytes: int = 0
    bytes_per_second: int = 0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


class SessionOver(Exception):
    """Report that the connection is gone; all that was owed has been reported."""


class _Question(NamedTuple):
    name: str
    asked_at: float
    judge: Callable[[pb.BaseCommand], Judgement]


class Session:
    """One connection, open and CONNECTED; raises SessionOver if it cannot be.

    `topics` keeps some names of the last list, for lookups.
    """

    def __init__(self, address: tuple[str, int], observer: Observer, habits: Habits = Habits()) -> None:
        self.topics: list[str] = []
        self._observer = observer
        self._habits = habits
        self._owed: dict[int, _Question] = {}
        self._request_ids = itertools.count(1)
        self._ping_ids = itertools.count(-1, -1)
        self._decoder = FrameDecoder(max_frame_bytes=MOST_ANSWER_BYTES)
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self._question(_CONNECT, "CONNECT", judge_connected)
        try:
            self._shake_hands(address)
        except BaseException:
            # Locust may end a user here, too, and then nobody has a session to leave.
            self.drop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()

    # Asking

    def ask_topics(self, namespace: str, topics: int = 0, name: str = "GET_TOPICS") -> None:
        """Ask for a namespace's topics, of which `topics` are expected (0: any number)."""
        request_id = next(self._request_ids)
        command = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
        command.getTopicsOfNamespace.request_id = request_id
        command.getTopicsOfNamespace.namespace = namespace
        self._question(request_id, name, lambda answer: judge_topics(answer, namespace, topics))
        self._send(commands.frame(command))

    def ask_lookup(self, topic: str, name: str = "LOOKUP") -> None:
        """Ask which broker serves a topic."""
        request_id = next(self._request_ids)
        command = pb.BaseCommand(type=pb.BaseCommand.LOOKUP)
        command.lookupTopic.request_id = request_id
        command.lookupTopic.topic = topic
        self._question(request_id, name, judge_lookup)
        self._send(commands.frame(command))

    def ask_ping(self, name: str = "PING") -> None:
        """Send a PING."""
        self._question(next(self._ping_ids), name, judge_pong)
        self._send(commands.PING_FRAME)

    def settle(self) -> None:
        """Read until nothing is owed; raises SessionOver when the connection ends before."""
        while self._owed:
            command, size = self._next_command()
            if command.type == CommandType.PING:
                self._send(commands.PONG_FRAME)
            else:
                self._take(command, size)

    def leave(self) -> None:
        """Close after a last PING: whatever comes before its PONG is an answer that nobody asked for."""
        self.settle()
        self.ask_ping("PING before leaving")
        self.settle()
        self._socket.close()

    def drop(self) -> None:
        """Close at once, and with it give up what is owed: by plan, or because Locust ends this user."""
        self._end(Outcome.DROPPED, "")

    # Answers

    def _take(self, command: pb.BaseCommand, size: int) -> None:
        key = self._answered(command)
        if key == commands.REQUEST_ID_NONE and command.type == CommandType.ERROR:
            self._over(Outcome.CLOSED, f"error about the connection: {command.error.message}")
        question = self._owed.pop(key, None)
        if question is None:
            text = f"got {pb.BaseCommand.Type.Name(command.type)} for no request that is owed an answer"
            self._observer.done(Exchange("unasked", Outcome.UNASKED, 0.0, size, text))
            return
        outcome, detail = question.judge(command)
        if command.type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE:
            self.topics = list(command.getTopicsOfNamespaceResponse.topics[:KEPT_NAMES])
        self._observer.done(Exchange(question.name, outcome, self._habits.clock() - question.asked_at, size, detail))
        if question.judge is judge_connected and outcome is not Outcome.ANSWERED:
            self._over(Outcome.CLOSED, detail)

    def _answered(self, command: pb.BaseCommand) -> int:
        if command.type == CommandType.PONG:
            return next((key for key in self._owed if key < _CONNECT), commands.REQUEST_ID_NONE)
        if _CONNECT in self._owed:
            return _CONNECT
        return commands.request_id_of(command)

    # The wire

    def _shake_hands(self, address: tuple[str, int]) -> None:
        try:
            self._open(address)
        except OSError as error:
            self._over(Outcome.CLOSED, f"cannot connect: {error.strerror or type(error).__name__}")
        command = pb.BaseCommand(type=pb.BaseCommand.CONNECT)
        command.connect.client_version = CLIENT_VERSION
        command.connect.protocol_version = commands.PROTOCOL_VERSION
        self._send(commands.frame(command))
        self.settle()

    def _open(self, address: tuple[str, int]) -> None:
        if self._habits.receive_buffer_bytes:
            # Before connect(): the window scale is fixed by the handshake.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._habits.receive_buffer_bytes)
        self._socket.settimeout(self._habits.answer_seconds)
        self._socket.connect(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _question(self, key: int, name: str, judge: Callable[[pb.BaseCommand], Judgement]) -> None:
        self._observer.asked()
        self._owed[key] = _Question(name, self._habits.clock(), judge)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._habits.answer_seconds)
            self._socket.sendall(data)
        except OSError as error:
            self._over(Outcome.CLOSED, f"cannot send: {error.strerror or type(error).__name__}")

    def _next_command(self) -> tuple[pb.BaseCommand, int]:
        try:
            while not isinstance(event := self._decoder.next_event(), Frame):
                self._receive()
            return commands.decode_command(event.command), event.head.frame_bytes
        except ProtocolError as error:
            self._over(Outcome.WRONG, f"{type(error).__name__}: {error}")

    def _receive(self) -> None:
        pace = self._habits.bytes_per_second
        try:
            self._socket.settimeout(self._patience())
            data = self._socket.recv(max(1, pace // _PACES_PER_SECOND) if pace else _RECEIVE_BYTES)
        except TimeoutError:
            self._over(Outcome.LOST, f"no answer within {self._habits.answer_seconds:g} s")
        except OSError as error:
            self._over(Outcome.CLOSED, f"cannot receive: {error.strerror or type(error).__name__}")
        if not data:
            self._over(Outcome.CLOSED, "closed by the peer")
        self._decoder.receive_data(data)
        # A pause of 0 lets other users run: a socket that always has something to give would keep them out.
        self._habits.sleep(len(data) / pace if pace else 0)

    def _patience(self) -> float:
        """Compute the seconds left for the oldest request; raises TimeoutError when there are none."""
        oldest = next(iter(self._owed.values()))
        left = oldest.asked_at + self._habits.answer_seconds - self._habits.clock()
        if left <= 0:
            raise TimeoutError
        return left

    # The end

    def _over(self, outcome: Outcome, detail: str) -> NoReturn:
        self._end(outcome, detail)
        raise SessionOver(detail)

    def _end(self, outcome: Outcome, detail: str) -> None:
        self._socket.close()
        now = self._habits.clock()
        while self._owed:
            question = self._owed.pop(next(iter(self._owed)))
            self._observer.done(Exchange(question.name, outcome, now - question.asked_at, 0, detail))
