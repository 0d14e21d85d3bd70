"""Which connections are logged, how many lines there are, and that a broken session costs no more than its line."""

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.clients.connection import ClientConnection
from proxy.clients.connection_log import CONNECTED, ENDED, HANDSHAKE, LOOKUP, RELAY, ConnectionLog, Ended
from proxy.config.config import Config
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.relay.engine import RelaySnapshot
from tests.support.loops.loops import run_virtual
from tests.unit.proxy.clients.test_sessions import Book, FakeRelay

CLOSED = DisconnectCause.CLIENT_CLOSED


def config(percent: float, lines: int = 100) -> Config:
    keys = {"connectionLogPercent": str(percent), "connectionLogMaxLinesPerSecond": str(lines)}
    return Config.load(None, {}, {"brokerServiceURL": "pulsar://b:6650", **keys})


class Written:
    """A connection log and its lines."""

    def __init__(self, percent: float, lines: int = 100) -> None:
        self._file = io.BytesIO()
        self.log = ConnectionLog(open_log("info", "json", self._file), lambda role: f"<{role}>", config(percent, lines))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]


def client(**more: Any) -> Any:
    output = SimpleNamespace(sent_bytes=70)
    fields = {"name": "192.0.2.1:5000", "principal": "app", "client_version": "go", "received_bytes": 7}
    return SimpleNamespace(**{**fields, "output": output, **more})


def relay() -> Any:
    moved = SimpleNamespace(moved=(11, 22))
    return SimpleNamespace(client_name="c:1", broker_name="b:6650", principal=None, snapshot=lambda: moved)


class MovedRelay(FakeRelay):
    """A relay that has moved something."""

    def __init__(self, book: Book) -> None:
        super().__init__(book)
        self.client_name, self.broker_name, self.principal = "c:1", "b:6650", None

    def snapshot(self) -> RelaySnapshot:
        return cast(RelaySnapshot, SimpleNamespace(moved=(11, 22)))


def test_nothing_is_written_by_default() -> None:
    assert Config.connection_log_percent.default == 0
    written = Written(0)
    for number in range(1, 1000):
        written.log.connected(number, client(), LOOKUP, 1.0)
        written.log.ended(client(), Ended("a", number, 0.0, LOOKUP), CLOSED, 1.0)
    assert written.lines == []


def test_both_lines_of_a_connection_say_who_it_was_what_it_moved_and_why_it_ended() -> None:
    written = Written(100)
    written.log.connected(7, client(), LOOKUP, 10.0)
    written.log.ended(client(), Ended("192.0.2.1", 7, 8.5, LOOKUP), CLOSED, 12.0)
    begin, end = [{name: value for name, value in line.items() if name != "time"} for line in written.lines]
    both = {
        "level": "info", "connection": 7, "client": "192.0.2.1:5000", "mode": "lookup", "principal": "<app>",
        "client_version": "go",
    }  # fmt: skip
    assert begin == {**both, "event": CONNECTED}
    moved = {"cause": "client_closed", "seconds": 3.5, "bytes_from_client": 7, "bytes_to_client": 70}
    assert end == {**both, **moved, "event": ENDED}


def test_a_relay_has_its_broker_and_what_moved_in_both_directions() -> None:
    written = Written(100)
    written.log.ended(relay(), Ended("192.0.2.1", 7, 0.0, RELAY), CLOSED, 2.0)
    [line] = written.lines
    assert (line["client"], line["broker"], line["mode"]) == ("c:1", "b:6650", "relay")
    assert (line["bytes_from_client"], line["bytes_to_client"]) == (11, 22)
    assert "principal" not in line


def test_a_client_that_never_got_through_its_tls_handshake_moved_nothing() -> None:
    written = Written(100)
    arrival: Any = SimpleNamespace(name="192.0.2.1", output=None)
    written.log.ended(arrival, Ended("192.0.2.1", 7, 0.0, HANDSHAKE), DisconnectCause.NOT_TLS, 2.0)
    [line] = written.lines
    assert (line["mode"], line["bytes_from_client"], line["cause"]) == ("handshake", 0, "not_tls")


@pytest.mark.parametrize("percent", [0.5, 10, 50])
def test_the_share_of_logged_connections_is_as_configured_also_of_ids_in_a_row(percent: float) -> None:
    log = Written(percent).log
    for start in (1, 123_456, 2**32):
        logged = sum(log.logs(number) for number in range(start, start + 10_000))
        assert logged == pytest.approx(100 * percent, rel=0.05, abs=2)


def test_a_connection_has_both_lines_or_none() -> None:
    written = Written(30)
    for number in range(1, 200):
        written.log.connected(number, client(), LOOKUP, float(number))
        written.log.ended(client(), Ended("a", number, 0.0, LOOKUP), CLOSED, float(number))
    began = [line["connection"] for line in written.lines if line["event"] == CONNECTED]
    ended = [line["connection"] for line in written.lines if line["event"] == ENDED]
    assert began == ended
    assert 30 < len(began) < 90


def test_lines_of_a_second_are_bounded_and_a_later_one_says_how_many_are_missing() -> None:
    written = Written(100, lines=5)
    for number in range(1, 21):
        written.log.connected(number, client(), LOOKUP, 10.5)
    assert len(written.lines) == 5
    written.log.connected(21, client(), LOOKUP, 11.0)
    assert written.lines[-1]["connections_since_last_line"] == 15


@pytest.mark.threat("connection-log-storm")
def test_a_name_that_a_client_chose_is_cut() -> None:
    written = Written(100)
    written.log.connected(1, client(client_version="x" * 4000, principal="p" * 4000), LOOKUP, 1.0)
    [line] = written.lines
    assert len(line["client_version"]) == len(line["principal"]) == 200


def test_the_list_of_sessions_tells_the_log_of_each_end() -> None:
    async def main() -> None:
        book, written = Book(), Written(100)
        book.sessions.connection_log = written.log
        silent = book.add("192.0.2.1")
        silent.abort(DisconnectCause.HANDSHAKE_TIMEOUT)
        relayed = book.add("192.0.2.2")
        relayed.in_lookup_mode = False
        book.done(relayed)
        assert written.lines[-1]["mode"] == "relay"
        made = MovedRelay(book)
        book.sessions.became_relay(cast(ClientConnection, relayed), made, lambda: True)
        made.abort(CLOSED)
        lookup = book.add("192.0.2.3")
        book.done(lookup)
        lookup.abort(DisconnectCause.IDLE)
        refused = book.add("192.0.2.4")
        refused.in_lookup_mode = False
        book.done(refused)
        refused.abort(DisconnectCause.TARGET_REFUSED)
        ends = [(line["connection"], line["mode"], line["cause"]) for line in written.lines if line["event"] == ENDED]
        assert ends == [
            (1, "handshake", "handshake_timeout"), (2, "relay", "client_closed"), (3, "lookup", "idle"),
            (4, "handshake", "target_refused"),
        ]  # fmt: skip
        assert not book.sessions._joining

    run_virtual(main())


def test_an_exception_of_a_broken_session_costs_no_more_than_its_line() -> None:
    async def main() -> None:
        book, written = Book(), Written(100)
        book.sessions.connection_log = written.log
        broken = book.add("192.0.2.1")
        broken.output = SimpleNamespace()
        broken.abort(CLOSED)
        assert len(book.sessions) == 0
        assert book.disconnects() == {"client_closed": 1}
        assert book.counters.shared.internal_errors == {"connection log": 1}

    run_virtual(main())


def test_the_real_session_has_what_the_log_asks_for() -> None:
    names = {"name", "principal", "client_version", "received_bytes", "output"}
    assert names <= set(ClientConnection.__slots__) | set(dir(ClientConnection))
    assert cast(Any, ClientConnection).in_lookup_mode
