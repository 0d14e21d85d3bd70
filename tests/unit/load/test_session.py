"""The load test's client against a scripted server: every request is reported once, whatever the server does."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from protocol.commands import PING_FRAME, PONG_FRAME, REQUEST_ID_NONE, error, frame, lookup_connect, lookup_failed
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.load.books import Exchange, Outcome
from tests.load.session import Habits, Session, SessionOver

NAMESPACE = "demo/ns-0"
TOPICS = [f"persistent://{NAMESPACE}/a", f"non-persistent://{NAMESPACE}/b"]
CONNECTED = frame(
    pb.BaseCommand(
        type=pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="s", protocol_version=21)
    )
)
GARBAGE = b"\x00\x00\x00\x05\x00\x00\x00\x09\x08"
PATIENT = Habits()
Script = Sequence[bytes]


def topics(request_id: int, names: Sequence[str] = TOPICS) -> bytes:
    response = pb.CommandGetTopicsOfNamespaceResponse(request_id=request_id, topics=names)
    kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    return frame(pb.BaseCommand(type=kind, getTopicsOfNamespaceResponse=response))


class Log:
    """An observer that keeps all it is told."""

    def __init__(self) -> None:
        self.count = 0
        self.exchanges: list[Exchange] = []

    def asked(self) -> None:
        self.count += 1

    def done(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)

    @property
    def ends(self) -> list[tuple[str, Outcome]]:
        return [(exchange.name, exchange.outcome) for exchange in self.exchanges if exchange.name != "CONNECT"]


@contextmanager
def serving(script: Script) -> Iterator[tuple[str, int]]:
    """Accept one client, send one piece of the script for each time it speaks, then close."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(30.0)
            for piece in script:
                peer.recv(65536)
                peer.sendall(piece)
            while peer.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30.0)
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield listener.getsockname()
        finally:
            server.join()


def visit(script: Script, what: Callable[[Session], None], habits: Habits = PATIENT) -> Log:
    log = Log()
    with serving(script) as address:
        try:
            with Session(address, log, habits) as session:
                what(session)
        except SessionOver:
            pass
    ended = [exchange for exchange in log.exchanges if exchange.outcome is not Outcome.UNASKED]
    assert len(ended) == log.count, "each request has exactly one end"
    return log


def list_topics(session: Session) -> None:
    session.ask_topics(NAMESPACE, len(TOPICS))
    session.settle()


def test_list_that_is_right_is_answered_and_its_names_kept() -> None:
    kept: list[str] = []

    def what(session: Session) -> None:
        list_topics(session)
        kept.extend(session.topics)

    assert visit([CONNECTED, topics(1)], what).ends == [("GET_TOPICS", Outcome.ANSWERED)]
    assert kept == TOPICS


@pytest.mark.parametrize(
    ("names", "detail"),
    [
        (TOPICS[:1], "got 1 topics, expected 2"),
        ([TOPICS[0], "persistent://demo/ns-1/a"], "got topic 'persistent://demo/ns-1/a', expected one of demo/ns-0"),
        ([TOPICS[0], TOPICS[0]], "got 1 topics twice"),
    ],
)
def test_list_that_cannot_be_is_wrong(names: Sequence[str], detail: str) -> None:
    log = visit([CONNECTED, topics(1, names)], list_topics)
    assert log.ends == [("GET_TOPICS", Outcome.WRONG)]
    assert log.exchanges[-1].detail == detail


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (error(1, ServerError.TooManyRequests, "heap"), Outcome.REFUSED),
        (error(1, ServerError.MetadataError, "no"), Outcome.FAILED),
        (lookup_connect(1, "pulsar://b:1"), Outcome.WRONG),
        (GARBAGE, Outcome.WRONG),
        (error(REQUEST_ID_NONE, ServerError.ServiceNotReady, "going"), Outcome.CLOSED),
        (PING_FRAME + topics(1), Outcome.ANSWERED),
    ],
)
def test_each_kind_of_answer_has_its_outcome(answer: bytes, outcome: Outcome) -> None:
    assert visit([CONNECTED, answer], list_topics).ends == [("GET_TOPICS", outcome)]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (lookup_connect(1, "pulsar://b:1"), Outcome.ANSWERED),
        (lookup_connect(1, ""), Outcome.WRONG),
        (lookup_failed(1, ServerError.TooManyRequests, "busy"), Outcome.REFUSED),
        (lookup_failed(1, ServerError.TopicNotFound, "none"), Outcome.FAILED),
    ],
)
def test_lookups_are_judged_too(answer: bytes, outcome: Outcome) -> None:
    def look_up(session: Session) -> None:
        session.ask_lookup(TOPICS[0])
        session.settle()

    assert visit([CONNECTED, answer], look_up).ends == [("LOOKUP", outcome)]


def test_second_answer_is_one_that_nobody_asked_for() -> None:
    def ask_and_leave(session: Session) -> None:
        session.ask_topics(NAMESPACE)
        session.leave()

    log = visit([CONNECTED, topics(1), topics(1) + PONG_FRAME], ask_and_leave)
    assert log.ends == [
        ("GET_TOPICS", Outcome.ANSWERED),
        ("unasked", Outcome.UNASKED),
        ("PING before leaving", Outcome.ANSWERED),
    ]


def test_pong_may_overtake_a_list() -> None:
    def ask_both(session: Session) -> None:
        session.ask_topics(NAMESPACE)
        session.ask_ping()
        session.settle()

    log = visit([CONNECTED, PONG_FRAME + topics(1)], ask_both)
    assert log.ends == [("PING", Outcome.ANSWERED), ("GET_TOPICS", Outcome.ANSWERED)]


def test_all_that_a_silent_server_owes_is_lost() -> None:
    now = 0.0

    def ask_twice(session: Session) -> None:
        nonlocal now
        session.ask_topics(NAMESPACE)
        session.ask_topics(NAMESPACE)
        now = 30.0
        session.settle()

    log = visit([CONNECTED], ask_twice, Habits(answer_seconds=30.0, clock=lambda: now))
    assert log.ends == [("GET_TOPICS", Outcome.LOST)] * 2
    assert {exchange.seconds for exchange in log.exchanges[1:]} == {30.0}


def test_client_that_drops_gives_up_what_is_owed() -> None:
    def drop(session: Session) -> None:
        session.ask_topics(NAMESPACE)
        session.drop()

    assert visit([CONNECTED], drop).ends == [("GET_TOPICS", Outcome.DROPPED)]


def test_client_that_is_ended_gives_up_what_is_owed() -> None:
    assert visit([CONNECTED], lambda session: session.ask_topics(NAMESPACE)).ends == [("GET_TOPICS", Outcome.DROPPED)]


def test_client_that_is_ended_while_it_connects_gives_that_up() -> None:
    class Ended(BaseException):
        pass

    def end(_: float) -> None:
        raise Ended

    log = Log()
    with serving([CONNECTED]) as address, pytest.raises(Ended):
        Session(address, log, Habits(sleep=end))
    assert [(exchange.name, exchange.outcome) for exchange in log.exchanges] == [("CONNECT", Outcome.DROPPED)]


def test_refused_handshake_is_a_refusal_of_connect() -> None:
    log = visit([error(REQUEST_ID_NONE, ServerError.TooManyRequests, "full")], list_topics)
    assert [(exchange.name, exchange.outcome) for exchange in log.exchanges] == [("CONNECT", Outcome.REFUSED)]


def test_nobody_at_the_address_ends_connect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    log = Log()
    with pytest.raises(SessionOver, match="cannot connect: Connection refused"):
        Session(address, log)
    assert [(exchange.name, exchange.outcome) for exchange in log.exchanges] == [("CONNECT", Outcome.CLOSED)]


def test_slow_reader_pauses_for_as_long_as_its_pace_demands() -> None:
    pauses: list[float] = []
    answer = topics(1)
    log = visit([CONNECTED, answer], list_topics, Habits(bytes_per_second=100, sleep=pauses.append))
    assert log.ends == [("GET_TOPICS", Outcome.ANSWERED)]
    assert max(pauses) <= 0.1 + 1e-9
    assert sum(pauses) == pytest.approx(len(CONNECTED + answer) / 100)
