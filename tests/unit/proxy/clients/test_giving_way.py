"""A relay whose end is told later, as one on threads, has given its place to a newcomer at once."""

from typing import cast

from proxy.clients import relay_crowds
from proxy.clients.connection import ClientConnection
from proxy.core.errors import DisconnectCause
from proxy.relay.engine import RelaySnapshot
from tests.support.loops.loops import run_virtual
from tests.unit.proxy.clients.test_sessions import Book, FakeRelay

CROWD = "192.0.2.1"


class LateRelay(FakeRelay):
    """A relay whose end is told when the test says so."""

    def abort(self, cause: DisconnectCause) -> None:
        self.end = f"aborted: {cause}"

    def snapshot(self) -> RelaySnapshot:
        return cast(RelaySnapshot, type("Quiet", (), {"moved": (0, 0)}))


def relays_of_a_stranger(book: Book, count: int) -> list[LateRelay]:
    relays = []
    for _ in range(count):
        relay = LateRelay(book)
        book.sessions.became_relay(cast(ClientConnection, book.add(CROWD)), relay, lambda: False)
        relays.append(relay)
    return relays


def test_two_newcomers_in_one_step_both_come_in() -> None:
    async def main() -> None:
        book = Book(total=30)
        relays = relays_of_a_stranger(book, 30)
        now = book.loop.time
        book.loop.time = lambda: now() + relay_crowds.QUIET_SECONDS  # type: ignore[method-assign]
        for number in range(2, 5):
            assert book.sessions.admission(f"192.0.2.{number}") is None
            book.add(f"192.0.2.{number}")
        gone = [relay for relay in relays if relay.end is not None]
        assert [relay.end for relay in gone] == ["aborted: connection_limit"] * 3
        assert len(book.sessions) == 30
        assert book.disconnects() == {}
        for relay in gone * 2:
            book.sessions.relay_ended(relay, DisconnectCause.CONNECTION_LIMIT)
        assert book.disconnects() == {"connection_limit": 3}
        assert {line["client"] for line in book.lines if line.get("cause") == "connection_limit"} <= {CROWD}
        assert (len(book.sessions), book.sessions.relays) == (30, 27)

    run_virtual(main())


def test_a_drain_waits_for_those_who_give_way() -> None:
    async def main() -> None:
        book = Book(total=3)
        relays = relays_of_a_stranger(book, 3)
        now = book.loop.time
        book.loop.time = lambda: now() + relay_crowds.QUIET_SECONDS  # type: ignore[method-assign]
        assert book.sessions.admission("192.0.2.2") is None
        (gone,) = (relay for relay in relays if relay.end is not None)
        for relay in relays:
            if relay is not gone:
                book.sessions.relay_ended(relay, DisconnectCause.CLIENT_CLOSED)
        book.loop.call_later(1, book.sessions.relay_ended, gone, DisconnectCause.CONNECTION_LIMIT)
        began = book.loop.time()
        await book.sessions.drain(30)
        assert 0.9 < book.loop.time() - began < 2

    run_virtual(main())
