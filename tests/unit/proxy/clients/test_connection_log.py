"""Which connections are logged, how many lines there are, and that a broken session costs no more than its line."""

import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.clients.connection_log import CONNECTED, ENDED, HANDSHAKE, LOOKUP, ConnectionLog, Ended
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted_by
from tests.unit.proxy.clients.test_sessions import Book

CLOSED = DisconnectCause.CLIENT_CLOSED


class Written:
    """A connection log and its lines."""

    def __init__(self, percent: float) -> None:
        self._file = io.BytesIO()
        self.log = ConnectionLog(open_log("info", "json", self._file), lambda role: f"<{role}>", percent)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]


def client(**more: Any) -> Any:
    output = SimpleNamespace(sent_bytes=70)
    fields = {"name": "192.0.2.1:5000", "principal": "app", "client_version": "go", "received_bytes": 7}
    return SimpleNamespace(**{**fields, "output": output, **more})


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
    written = Written(100)
    for number in range(1, 116):
        written.log.connected(number, client(), LOOKUP, 10.5)
    assert len(written.lines) == 100
    written.log.connected(116, client(), LOOKUP, 11.0)
    assert written.lines[-1]["connections_since_last_line"] == 15


@pytest.mark.threat("connection-log-storm")
def test_a_name_that_a_client_chose_is_cut() -> None:
    written = Written(100)
    written.log.connected(1, client(client_version="x" * 4000, principal="p" * 4000), LOOKUP, 1.0)
    [line] = written.lines
    assert len(line["client_version"]) == len(line["principal"]) == 200


@virtual
async def test_an_exception_of_a_broken_session_costs_no_more_than_its_line() -> None:
    written = Written(100)
    book = Book(connection_log=written.log)
    broken = book.add("192.0.2.1")
    broken.output = SimpleNamespace()
    broken.abort(CLOSED)
    assert len(book.sessions) == 0
    assert book.disconnects() == {"client_closed": 1}
    assert counted_by(book.counters, "internal_errors") == {"connection_log": 1}
