"""A connection whose own code raises while the sessions look at it: that connection ends, and nobody else notices."""

import asyncio

import pytest

from proxy.core.errors import DisconnectCause
from tests.support.loops.loops import run_virtual
from tests.unit.proxy.clients.test_sessions import HANDSHAKE_SECONDS, Book, FakeClient, FakeRelay

CRASH = RuntimeError("crash of this connection")


def crash(*_: object) -> None:
    raise CRASH


def crashing(member: FakeClient | FakeRelay, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    """Make methods of one member raise, through its class: a relay has slots."""
    kind = type(member)
    for method in methods:
        usual = getattr(kind, method)

        def call(self: object, *args: object, usual: object = usual) -> object:
            if self is member:
                raise CRASH
            return usual(self, *args)  # type: ignore[operator]

        monkeypatch.setattr(kind, method, call)


def errors(book: Book) -> dict[str, int]:
    return book.counters.shared.internal_errors


class TestClock:
    @pytest.mark.parametrize("how", ["client", "relay"])
    def test_a_tick_that_raises_ends_that_connection_only(self, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        async def main() -> None:
            book = Book(keep_alive_seconds=1, read_timeout_seconds=4.0)
            clients = [book.add() for _ in range(3)]
            members = [book.relay(client) if how == "relay" else client for client in clients]
            if how == "client":
                for client in clients:
                    book.done(client)
            crashing(members[0], monkeypatch, "tick")
            await book.sessions.tick(book.loop.time())
            assert [len(member.ticks) for member in members] == [0, 1, 1]
            assert [member.end for member in members] == ["aborted: internal_error", None, None]
            assert errors(book) == {"session": 1}
            await book.sessions.tick(book.loop.time())
            assert errors(book) == {"session": 1}

        run_virtual(main())

    @pytest.mark.parametrize("how", ["client", "relay"])
    def test_who_cannot_be_ended_leaves_the_books(self, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        async def main() -> None:
            book = Book(keep_alive_seconds=1, read_timeout_seconds=4.0)
            clients = [book.add() for _ in range(2)]
            members = [book.relay(client) if how == "relay" else client for client in clients]
            if how == "client":
                for client in clients:
                    book.done(client)
            crashing(members[0], monkeypatch, "tick", "abort")
            await book.sessions.tick(book.loop.time())
            assert len(members[1].ticks) == 1
            assert len(book.sessions) == 1
            assert book.disconnects() == {"internal_error": 1}
            assert errors(book) == {"session": 2}

        run_virtual(main())

    def test_a_late_handshake_that_cannot_be_cut_holds_up_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            book = Book()
            clients = [book.add() for _ in range(3)]
            crashing(clients[0], monkeypatch, "abort")
            await asyncio.sleep(HANDSHAKE_SECONDS)
            await book.sessions.tick(book.loop.time())
            assert [client.end for client in clients[1:]] == ["aborted: handshake_timeout"] * 2
            assert len(book.sessions) == 0

        run_virtual(main())

    def test_a_look_at_credentials_that_raises_ends_that_connection_only(self) -> None:
        async def main() -> None:
            book = Book()
            clients = [book.add() for _ in range(2)]
            seen: list[str] = []
            for client, look in zip(clients, (crash, lambda: seen.append("second")), strict=True):
                book.done(client)
                book.sessions.watch_credentials(client, look)  # type: ignore[arg-type]
            for _ in range(60):
                await book.sessions.tick(book.loop.time())
            assert seen == ["second"]
            assert [client.end for client in clients] == ["aborted: internal_error", None]

        run_virtual(main())


class TestNeighbours:
    def test_a_drain_ends_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            book = Book()
            idle, busy = [book.add() for _ in range(2)], [book.add(busy=True) for _ in range(2)]
            crashing(idle[0], monkeypatch, "close", "abort")
            crashing(busy[0], monkeypatch, "abort")
            await book.sessions.drain(1.0)
            assert idle[1].end == "closed: shutdown"
            assert busy[1].end == "aborted: shutdown"
            assert len(book.sessions) == 0

        run_virtual(main())

    def test_a_changed_limit_reaches_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            book = Book()
            clients = [book.add() for _ in range(2)]
            crashing(clients[0], monkeypatch, "limits_changed")
            book.sessions.apply(book.sessions.limits)
            assert clients[1].limit_changes == 1
            assert clients[0].end == "aborted: internal_error"

        run_virtual(main())

    def test_a_newcomer_gets_the_place_of_one_that_cannot_be_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            book = Book(total=5)
            crowd = [book.add("192.0.2.1") for _ in range(5)]
            crashing(crowd[0], monkeypatch, "abort")
            await asyncio.sleep(2)
            assert book.sessions.admission("192.0.2.2") is None
            assert len(book.sessions) == 4
            assert book.disconnects() == {str(DisconnectCause.CONNECTION_LIMIT): 1}

        run_virtual(main())
