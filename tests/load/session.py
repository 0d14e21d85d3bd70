"""A Pulsar client in lookup mode over a plain blocking socket, which books every request it asks and judges the answer.

Rule: each request is reported exactly once, whatever happens: answered, refused, wrong, or ended with its connection.
Imports no Locust: in a process where sockets are patched the same code gives way to the other users by itself.
"""

import itertools
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from protocol import commands
from protocol.errors import ProtocolError, ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.load.books import Exchange, Outcome
from tests.support.clients.commands import command
from tests.support.clients.wire import WireClient

KEPT_NAMES: Final = 100
_RECEIVE_BYTES: Final = 64 * 1024
_PACES_PER_SECOND: Final = 10
# Request ids count up from 1, those of PINGs down from -1: these two have none on the wire.
_CONNECT: Final = 0

Judgement = tuple[Outcome, str]
Judge = Callable[[pb.BaseCommand], Judgement]
_RIGHT: Final = (Outcome.ANSWERED, "")


def judge_topics(answer: pb.BaseCommand, namespace: str, topics: int) -> Judgement:
    """Judge the answer to GET_TOPICS_OF_NAMESPACE; `topics` names are expected, 0: any number."""
    if answer.type != pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE:
        return _not_served(answer)
    detail = _wrong_names(answer.getTopicsOfNamespaceResponse.topics, namespace, topics)
    return (Outcome.WRONG, detail) if detail else _RIGHT


def _wrong_names(names: Sequence[str], namespace: str, topics: int) -> str:
    if topics and len(names) != topics:
        return f"got {len(names)} topics, expected {topics}"
    prefixes = (f"persistent://{namespace}/", f"non-persistent://{namespace}/")
    foreign = next((name for name in names if not name.startswith(prefixes)), None)
    if foreign is not None:
        return f"got topic {foreign[:100]!r}, expected one of {namespace}"
    twice = len(names) - len(set(names))
    return f"got {twice} topics twice" if twice else ""


def judge_lookup(answer: pb.BaseCommand) -> Judgement:
    """Judge the answer to LOOKUP: it must name a broker."""
    if answer.type != pb.BaseCommand.LOOKUP_RESPONSE:
        return _not_served(answer)
    response = answer.lookupTopicResponse
    if response.response == pb.CommandLookupTopicResponse.Failed:
        return _error(response.error, response.message)
    return _RIGHT if response.brokerServiceUrl else (Outcome.WRONG, "got a lookup answer without a broker")


def judge_connected(answer: pb.BaseCommand) -> Judgement:
    return _RIGHT if answer.type == pb.BaseCommand.CONNECTED else _not_served(answer)


def judge_pong(answer: pb.BaseCommand) -> Judgement:
    return _RIGHT if answer.type == pb.BaseCommand.PONG else _not_served(answer)


def _not_served(answer: pb.BaseCommand) -> Judgement:
    if answer.type == pb.BaseCommand.ERROR:
        return _error(answer.error.error, answer.error.message)
    return Outcome.WRONG, f"got {pb.BaseCommand.Type.Name(answer.type)}, expected another answer"


def _error(code: int, message: str) -> Judgement:
    if code == ServerError.TooManyRequests:
        return Outcome.REFUSED, message
    return Outcome.FAILED, f"{ServerError(code).name}: {message}"


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


class SessionOver(Exception):
    """Report that the connection is gone; all that was owed has been reported."""


class _Question(NamedTuple):
    name: str
    asked_at: float
    judge: Judge


class Session(WireClient):
    """One connection, open and CONNECTED; raises SessionOver if it cannot be.

    `topics` keeps some names of the last list, for lookups.
    """

    def __init__(self, address: tuple[str, int], observer: Observer, habits: Habits) -> None:
        super().__init__(*address, over=socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET))
        self.topics: list[str] = []
        self._observer = observer
        self._habits = habits
        self._owed: dict[int, _Question] = {}
        self._ping_ids = itertools.count(-1, -1)
        self._came_bytes = 0
        self._question(_CONNECT, "CONNECT", judge_connected)
        try:
            self._open(address)
            greeting = {"client_version": "load-test", "protocol_version": commands.PROTOCOL_VERSION}
            self.send_command(command("CONNECT", **greeting))
            self.settle()
        except BaseException:
            # Locust may end a user here, too, and then nobody has a session to leave.
            self.drop()
            raise

    def __exit__(self, *_: object) -> None:
        self.drop()

    # Asking

    def ask_topics_of(self, namespace: str, topics: int, name: str = "GET_TOPICS") -> None:
        """Ask for a namespace's topics, of which `topics` are expected (0: any number)."""
        judge = lambda answer: judge_topics(answer, namespace, topics)  # noqa: E731
        self._ask("GET_TOPICS_OF_NAMESPACE", name, judge, namespace=namespace)

    def ask_lookup(self, topic: str, name: str) -> None:
        """Ask which broker serves a topic."""
        self._ask("LOOKUP", name, judge_lookup, topic=topic)

    def ask_ping(self, name: str) -> None:
        """Send a PING."""
        self._question(next(self._ping_ids), name, judge_pong)
        self.send_raw(commands.PING_FRAME)

    def settle(self) -> None:
        """Read until nothing is owed; raises SessionOver when the connection ends before."""
        while self._owed:
            self._came_bytes = 0
            try:
                came = self.recv_command()
            except ProtocolError as error:
                self._over(Outcome.WRONG, f"{type(error).__name__}: {error}")
            if came.type == pb.BaseCommand.PING:
                self.send_raw(commands.PONG_FRAME)
            else:
                self._take(came)

    def leave(self) -> None:
        """Close after a last PING: whatever comes before its PONG is an answer that nobody asked for."""
        self.settle()
        self.ask_ping("PING before leaving")
        self.settle()
        self.sock.close()

    def drop(self) -> None:
        """Close at once, and with it give up what is owed: by plan, or because Locust ends this user."""
        self._end(Outcome.DROPPED, "")

    def _ask(self, kind: str, name: str, judge: Judge, **fields: Any) -> None:
        request_id = self.next_id()
        self._question(request_id, name, judge)
        self.send_command(command(kind, request_id=request_id, **fields))

    # Answers

    def _take(self, came: pb.BaseCommand) -> None:
        key = self._answered(came)
        if key == commands.REQUEST_ID_NONE and came.type == pb.BaseCommand.ERROR:
            self._over(Outcome.CLOSED, f"error about the connection: {came.error.message}")
        question = self._owed.pop(key, None)
        if question is None:
            text = f"got {pb.BaseCommand.Type.Name(came.type)} for no request that is owed an answer"
            self._observer.done(Exchange("unasked", Outcome.UNASKED, 0.0, self._came_bytes, text))
            return
        outcome, detail = question.judge(came)
        if came.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE:
            self.topics = list(came.getTopicsOfNamespaceResponse.topics[:KEPT_NAMES])
        took = time.monotonic() - question.asked_at
        self._observer.done(Exchange(question.name, outcome, took, self._came_bytes, detail))
        if question.judge is judge_connected and outcome is not Outcome.ANSWERED:
            self._over(Outcome.CLOSED, detail)

    def _answered(self, came: pb.BaseCommand) -> int:
        if came.type == pb.BaseCommand.PONG:
            return next((key for key in self._owed if key < _CONNECT), commands.REQUEST_ID_NONE)
        return _CONNECT if _CONNECT in self._owed else commands.request_id_of(came)

    def _question(self, key: int, name: str, judge: Judge) -> None:
        self._observer.asked()
        self._owed[key] = _Question(name, time.monotonic(), judge)

    # The wire

    def _open(self, address: tuple[str, int]) -> None:
        try:
            if self._habits.receive_buffer_bytes:
                # Before connect(): the window scale is fixed by the handshake.
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._habits.receive_buffer_bytes)
            self.sock.settimeout(self._habits.answer_seconds)
            self.sock.connect(address)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            self._over(Outcome.CLOSED, f"cannot connect: {error.strerror or type(error).__name__}")

    def send_raw(self, data: bytes) -> None:
        try:
            self.sock.settimeout(self._habits.answer_seconds)
            self.sock.sendall(data)
        except OSError as error:
            self._over(Outcome.CLOSED, f"cannot send: {error.strerror or type(error).__name__}")

    def receive(self, size: int) -> bytes:
        pace, pieces = self._habits.bytes_per_second, bytearray()
        most = max(1, pace // _PACES_PER_SECOND) if pace else _RECEIVE_BYTES
        while len(pieces) < size:
            try:
                self.sock.settimeout(self._patience())
                data = self.sock.recv(min(size - len(pieces), most))
            except TimeoutError:
                self._over(Outcome.LOST, f"no answer within {self._habits.answer_seconds:g} s")
            except OSError as error:
                self._over(Outcome.CLOSED, f"cannot receive: {error.strerror or type(error).__name__}")
            if not data:
                self._over(Outcome.CLOSED, "closed by the peer")
            pieces += data
            # A pause of 0 lets other users run: a socket that always has something to give would keep them out.
            time.sleep(len(data) / pace if pace else 0)
        self._came_bytes += size
        return bytes(pieces)

    def _patience(self) -> float:
        """Compute the seconds left for the oldest request; raises TimeoutError when there are none."""
        oldest = next(iter(self._owed.values()))
        left = oldest.asked_at + self._habits.answer_seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    # The end

    def _over(self, outcome: Outcome, detail: str) -> NoReturn:
        self._end(outcome, detail)
        raise SessionOver(detail)

    def _end(self, outcome: Outcome, detail: str) -> None:
        self.sock.close()
        now = time.monotonic()
        while self._owed:
            question = self._owed.pop(next(iter(self._owed)))
            self._observer.done(Exchange(question.name, outcome, now - question.asked_at, 0, detail))
