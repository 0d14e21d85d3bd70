import asyncio
import io
import json
from collections.abc import Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.errors import ServerError
from proxy.clients.connection import ClientConnection
from proxy.clients.connection_log import ConnectionLog
from proxy.clients.crowds import IDLE_SECONDS
from proxy.clients.sessions import (
    DRAIN_LOOK_SECONDS,
    LINGER_SECONDS,
    LOOKS_A_TURN,
    SessionLimits,
    Sessions,
)
from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.relay.engine import RelaySnapshot
from proxy.relay.native_engine import NativeRelay
from proxy.relay.relay_crowds import QUIET_SECONDS
from proxy.relay.traffic import RelayTraffic
from tests.support.clients.list_clients import turns
from tests.support.cores import core_of
from tests.support.loops.loops import virtual
from tests.support.proxies.counted import counted_by

HANDSHAKE_SECONDS = 10.0


class FakeClient:
    """A client connection as far as the list of all of them can see."""

    def __init__(self, book: "Book", address: str, busy: bool) -> None:
        self._book = book
        self.client_address = address
        self.detail = ""
        self.name = f"{address}:5000"
        self.busy = busy
        self.ticks: list[float] = []
        self.limit_changes = 0
        self.received_bytes = 0
        self.principal = self.client_version = None
        self.in_lookup_mode = True
        self.output: Any = SimpleNamespace(sent_bytes=0)
        self.end: str | None = None
        # Looks at which it has asked since the look before, and the bytes that wait in the kernel.
        self.asks, self.unread = 0, 0

    def idle_since_asked(self) -> bool:
        self.asks -= self.asks > 0
        return not self.busy and not self.asks

    def unread_bytes(self) -> int:
        return self.unread

    def tick(self, now: float) -> None:
        self.ticks.append(now)

    def limits_changed(self) -> None:
        self.limit_changes += 1

    def close(self, cause: DisconnectCause) -> None:
        self._ended("closed", cause)

    def abort(self, cause: DisconnectCause) -> None:
        self._ended("aborted", cause)

    def _ended(self, how: str, cause: DisconnectCause) -> None:
        if self.end is None:
            self.end = f"{how}: {cause}"
            self._book.sessions.ended(cast(ClientConnection, self), cause)


class FakeRelay(NativeRelay):
    """A relay without sockets."""

    __slots__ = ("_book", "end", "ticks")

    def __init__(self, book: "Book") -> None:
        self._book = book
        self.ticks: list[float] = []
        self.traffic = RelayTraffic(book.counters, 0.0, 60.0)
        self.end: str | None = None
        self.detail = ""

    def tick(self, now: float) -> None:
        self.ticks.append(now)

    def close(self, cause: DisconnectCause) -> None:
        raise AssertionError("a relay is busy and never closed by a drain")

    def abort(self, cause: DisconnectCause) -> None:
        self.end = f"aborted: {cause}"
        self._book.sessions.relay_ended(self, cause)


class Book:
    """The list of all sessions on the running loop, with its counters and its log."""

    def __init__(
        self,
        total: int = 0,
        per_address: int = 0,
        keep_alive_seconds: int = 30,
        read_timeout_seconds: float = 75.0,
        ipv6_bits: int = 64,
        connection_log: ConnectionLog | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self._file = io.BytesIO()
        limits = SessionLimits(
            total, per_address, HANDSHAKE_SECONDS, keep_alive_seconds, read_timeout_seconds, ipv6_bits=ipv6_bits
        )
        log = open_log("debug", "json", self._file)
        connection_log = connection_log or ConnectionLog(log, str, 0.0)
        self.sessions = Sessions(core_of(counters=self.counters, log=log), limits, connection_log)

    def add(self, address: str = "192.0.2.1", busy: bool = False) -> FakeClient:
        client = FakeClient(self, address, busy)
        self.sessions.add(cast(ClientConnection, client), self.loop.time())
        return client

    def done(self, client: FakeClient) -> None:
        self.sessions.handshake_done(cast(ClientConnection, client))

    def relay(self, client: FakeClient) -> FakeRelay:
        relay = FakeRelay(self)
        self.sessions.became_relay(cast(ClientConnection, client), relay, lambda: True)
        return relay

    def disconnects(self) -> dict[str, int]:
        return {cause: count for cause, count in counted_by(self.counters, "disconnects").items() if count}

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.getvalue().splitlines()]


class TestLimits:
    @virtual
    async def test_the_total_is_bounded_and_a_place_is_free_again_at_once(self) -> None:
        book = Book(total=2)
        first, _ = book.add("192.0.2.1"), book.add("192.0.2.2")
        refusal = book.sessions.refusal("192.0.2.3")
        assert refusal is not None
        assert refusal.error == ServerError.ServiceNotReady
        assert "(2, maxConcurrentInboundConnections)" in refusal.text
        first.close(DisconnectCause.CLIENT_CLOSED)
        assert book.sessions.refusal("192.0.2.3") is None

    @pytest.mark.threat("many-ipv6-addresses")
    @pytest.mark.parametrize("bits", [48, 64, 128])
    @virtual
    async def test_one_ipv6_network_is_one_address(self, bits: int) -> None:
        book = Book(per_address=2, ipv6_bits=bits)
        clients = [book.add(f"2001:db8::{number}") for number in (1, 2)]
        assert (book.sessions.refusal("2001:db8::3") is None) == (bits == 128)
        assert (book.sessions.refusal("2001:db8:0:1::1") is None) == (bits > 48)
        assert book.sessions.refusal("2001:db8:1::1") is None
        clients[0].close(DisconnectCause.CLIENT_CLOSED)
        assert book.sessions.refusal("2001:db8::3") is None


CROWD = "192.0.2.1"


class TestRoomForNewcomers:
    @virtual
    async def test_a_client_with_a_connect_leaves_when_it_is_idle(self) -> None:
        book = Book(total=4)
        busy, idle = book.add(CROWD, busy=True), book.add(CROWD)
        for client in (busy, idle, book.add(CROWD)):
            book.done(client)
        book.add("192.0.2.2")
        await asyncio.sleep(IDLE_SECONDS)
        assert book.sessions.admission("192.0.2.3") is None
        assert idle.end == "aborted: connection_limit"
        assert busy.end is None


async def ends_by_iteration(book: Book, work: Coroutine[Any, Any, None]) -> list[int]:
    """Return how many sessions end in each iteration of the loop until `work` is done."""
    ends, before = [], len(book.sessions)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(work)
        while not working.done():
            await asyncio.sleep(0)
            ends.append(before - len(book.sessions))
            before = len(book.sessions)
    return ends


class TestHandshake:
    @pytest.mark.threat("silent-crowd-times-out")
    @virtual
    async def test_thousands_of_late_ones_are_cut_a_few_in_an_iteration_of_the_loop(self) -> None:
        book = Book()
        for _ in range(2000):
            book.add()
        left = await ends_by_iteration(book, book.sessions.tick(book.loop.time() + 60.0))
        assert max(left) <= LOOKS_A_TURN
        assert sum(left) == 2000

    @virtual
    async def test_who_connects_while_others_are_cut_is_not_cut(self) -> None:
        book = Book()
        clients = [book.add() for _ in range(LOOKS_A_TURN + 2)]
        async with asyncio.TaskGroup() as group:
            group.create_task(book.sessions.tick(book.loop.time() + 60.0))
            await asyncio.sleep(0)
            book.done(clients[-2])
            clients[-1].close(DisconnectCause.CLIENT_CLOSED)
        assert (clients[-3].end, clients[-2].end) == ("aborted: handshake_timeout", None)
        assert clients[-1].end == "closed: client_closed"

    @pytest.mark.parametrize("how", ["connected", "relayed"])
    @virtual
    async def test_who_is_through_is_not_cut(self, how: str) -> None:
        book = Book()
        client = book.add()
        if how == "relayed":
            book.relay(client)
        else:
            book.done(client)
        await book.sessions.tick(book.loop.time() + 60.0)
        assert (client.end, len(book.sessions), book.disconnects()) == (None, 1, {})


class TestKeepAlive:
    @virtual
    async def test_each_session_has_one_turn_in_an_interval(self) -> None:
        book = Book(keep_alive_seconds=5, read_timeout_seconds=20.0)
        clients = [book.add() for _ in range(17)]
        relays = [book.relay(client) for client in clients[:4]]
        for client in clients[4:]:
            book.done(client)
        for second in range(10):
            await book.sessions.tick(book.loop.time() + second)
        assert [len(client.ticks) for client in clients] == [0] * 4 + [2] * 13
        assert [len(relay.ticks) for relay in relays] == [2] * 4

    @pytest.mark.threat("silent-crowd-times-out")
    @virtual
    async def test_the_looks_of_a_second_are_taken_a_few_in_an_iteration_of_the_loop(self) -> None:
        book = Book(keep_alive_seconds=1, read_timeout_seconds=4.0)
        clients = [book.add() for _ in range(600)]
        relays = [book.relay(client) for client in clients[:300]]
        for client in clients[300:]:
            book.done(client)
        everybody: list[FakeClient | FakeRelay] = [*clients[300:], *relays]
        seen: list[int] = []
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(book.sessions.tick(book.loop.time()))
            while not looking.done():
                await asyncio.sleep(0)
                seen.append(sum(len(each.ticks) for each in everybody))
        assert max(after - before for before, after in pairwise([0, *seen])) <= LOOKS_A_TURN
        assert {len(each.ticks) for each in everybody} == {1}


class TestChangedLimits:
    @virtual
    async def test_lowered_below_those_connected_nobody_is_closed_and_newcomers_are_refused(self) -> None:
        book = Book(total=3)
        clients = [book.add(f"192.0.2.{number}") for number in range(3)]
        book.sessions.apply(SessionLimits(1, 0, HANDSHAKE_SECONDS, 30, 75.0))
        assert [client.end for client in clients] == [None] * 3
        for client in clients[:2]:
            assert "(1, maxConcurrentInboundConnections)" in str(book.sessions.refusal("192.0.2.9"))
            client.close(DisconnectCause.CLIENT_CLOSED)
        assert book.sessions.refusal("192.0.2.9") is not None
        clients[2].close(DisconnectCause.CLIENT_CLOSED)
        assert book.sessions.refusal("192.0.2.9") is None

    @virtual
    async def test_a_shorter_handshake_holds_for_those_who_are_in_it(self) -> None:
        book = Book()
        early = book.add()
        await asyncio.sleep(4.0)
        late = book.add()
        book.sessions.apply(SessionLimits(0, 0, 3.0, 30, 75.0))
        await book.sessions.tick(book.loop.time())
        assert (early.end, late.end) == ("aborted: handshake_timeout", None)
        await book.sessions.tick(book.loop.time() + 3.0)
        assert late.end == "aborted: handshake_timeout"

    @virtual
    async def test_a_shorter_interval_holds_for_those_who_are_there(self) -> None:
        book = Book(keep_alive_seconds=3600)
        client, relay = book.add(), book.relay(book.add())
        book.done(client)
        book.sessions.apply(SessionLimits(0, 0, HANDSHAKE_SECONDS, 5, 20.0))
        for second in range(5):
            await book.sessions.tick(book.loop.time() + second)
        assert (len(client.ticks), client.limit_changes) == (1, 1)
        assert (len(relay.ticks), relay.traffic.read_timeout_seconds) == (1, 20.0)


class TestDrain:
    @virtual
    async def test_thousands_of_idle_clients_are_closed_a_few_in_an_iteration_of_the_loop(self) -> None:
        book = Book()
        for _ in range(1000):
            book.add()
        left = await ends_by_iteration(book, book.sessions.drain(30.0))
        assert max(left) <= LOOKS_A_TURN
        assert sum(left) == 1000

    @virtual
    async def test_a_client_that_has_just_asked_is_left_until_a_look_finds_it_quiet(self) -> None:
        book = Book()
        clients, start = [book.add(), book.add()], book.loop.time()
        for client in clients:
            book.done(client)
        clients[0].asks = 3
        ends = list[str | None]()
        book.loop.call_later(1.5 * DRAIN_LOOK_SECONDS, lambda: ends.extend(client.end for client in clients))
        await book.sessions.drain(30.0)
        assert ends == [None, "closed: shutdown"]
        assert clients[0].end == "closed: shutdown"
        assert book.loop.time() - start < 4 * DRAIN_LOOK_SECONDS

    @pytest.mark.parametrize(("seconds", "lingers"), [(30.0, LINGER_SECONDS), (0.4, 0.2)])
    @virtual
    async def test_a_client_that_asks_all_the_time_is_closed_between_two_requests(
        self, seconds: float, lingers: float
    ) -> None:
        book = Book()
        client, start = book.add(), book.loop.time()
        book.done(client)
        client.asks, client.unread = 10**9, 1
        await book.sessions.drain(seconds)
        assert client.end == "closed: shutdown"
        assert book.loop.time() - start == pytest.approx(lingers, abs=0.1)

    @virtual
    async def test_who_is_still_there_at_the_deadline_is_cut(self) -> None:
        book = Book()
        client, relay, start = book.add(busy=True), book.relay(book.add()), book.loop.time()
        await book.sessions.drain(30.0)
        assert (client.end, relay.end) == ("aborted: shutdown", "aborted: shutdown")
        assert book.loop.time() - start == pytest.approx(30.0, abs=0.1)
        (warning,) = [line for line in book.lines if line["level"] == "warning"]
        assert warning["connections"] == 2
        assert len(book.sessions) == 0

    @virtual
    async def test_a_client_that_becomes_a_relay_while_others_are_cut_is_cut_too(self) -> None:
        book = Book()
        clients = [book.add(busy=True) for _ in range(LOOKS_A_TURN + 2)]
        async with asyncio.TaskGroup() as group:
            group.create_task(book.sessions.drain(0.0))
            while len(book.sessions) > 2:
                await turns(1)
            relay = book.relay(clients[-1])
        assert (relay.end, clients[-1].end, len(book.sessions)) == ("aborted: shutdown", None, 0)


class TestBooks:
    @virtual
    async def test_a_storm_of_ends_writes_one_line_a_second_for_each_cause(self) -> None:
        book = Book()
        for _ in range(100):
            book.add().abort(DisconnectCause.MALFORMED_FRAME)
            book.add().abort(DisconnectCause.READ_TIMEOUT)
        await asyncio.sleep(1.0)
        book.add().abort(DisconnectCause.MALFORMED_FRAME)
        told = [line["cause"] for line in book.lines if line["level"] == "info"]
        assert told == ["malformed_frame", "read_timeout", "malformed_frame"]

    @virtual
    async def test_who_is_closed_for_memory_is_told_with_the_key_to_change(self) -> None:
        book = Book()
        for _ in range(3):
            book.add().abort(DisconnectCause.MEMORY_LIMIT)
        (line,) = book.lines
        assert (line["level"], line["cause"]) == ("warning", "memory_limit")
        assert line["change"] == "maxTopicListInFlightDirectMemSizeMB"

    @pytest.mark.parametrize("cause", [DisconnectCause.WRITE_STALLED, DisconnectCause.READS_TOO_SLOWLY])
    @virtual
    async def test_who_is_closed_for_not_reading_is_not_told_twice(self, cause: DisconnectCause) -> None:
        book = Book()
        book.add().abort(cause)
        assert [line["level"] for line in book.lines] == ["debug"]


class TestCredentials:
    @virtual
    async def test_credentials_are_looked_at_once_in_their_interval_for_as_long_as_the_client_is_there(self) -> None:
        book = Book()
        book.sessions.apply(SessionLimits(0, 0, HANDSHAKE_SECONDS, 30, 75.0))
        looks: list[str] = []
        client, silent = book.add(), book.add()
        book.sessions.watch_credentials(cast(ClientConnection, client), lambda: looks.append("client"))
        relay = book.relay(silent)
        book.sessions.watch_credentials(relay, lambda: looks.append("relay"))
        for _ in range(60):
            await book.sessions.tick(book.loop.time())
        assert sorted(looks) == ["client", "relay"]
        client.close(DisconnectCause.CLIENT_CLOSED)
        relay.abort(DisconnectCause.CLIENT_CLOSED)
        for _ in range(60):
            await book.sessions.tick(book.loop.time())
        assert len(looks) == 2


class LateRelay(FakeRelay):
    """A relay whose end is told when the test says so."""

    def abort(self, cause: DisconnectCause) -> None:
        self.end = f"aborted: {cause}"

    def snapshot(self) -> RelaySnapshot:
        return cast(RelaySnapshot, type("Quiet", (), {"moved": (0, 0)}))


@virtual
async def test_a_drain_waits_for_those_who_give_way() -> None:
    book = Book(total=3)
    relays = [LateRelay(book) for _ in range(3)]
    for relay in relays:
        book.sessions.became_relay(cast(ClientConnection, book.add(CROWD)), relay, lambda: False)
    now = book.loop.time
    book.loop.time = lambda: now() + QUIET_SECONDS  # type: ignore[method-assign]
    assert book.sessions.admission("192.0.2.2") is None
    (gone,) = (relay for relay in relays if relay.end is not None)
    for relay in relays:
        if relay is not gone:
            book.sessions.relay_ended(relay, DisconnectCause.CLIENT_CLOSED)
    book.loop.call_later(1, book.sessions.relay_ended, gone, DisconnectCause.CONNECTION_LIMIT)
    began = book.loop.time()
    await book.sessions.drain(30)
    assert 0.9 < book.loop.time() - began < 2


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
    return counted_by(book.counters, "internal_errors")


class TestClock:
    @pytest.mark.parametrize("how", ["client", "relay"])
    @virtual
    async def test_a_tick_that_raises_ends_that_connection_only(
        self, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
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

    @virtual
    async def test_a_look_at_credentials_that_raises_ends_that_connection_only(self) -> None:
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
