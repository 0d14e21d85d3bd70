"""Clients that wait for their handshake: what one of them raises or drips is no other's business."""

import asyncio
import io
import socket
from typing import Any, cast

import pytest

from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.tls.arrivals import EVENTS_AT_ONCE, Arrival, Arrivals
from proxy.net.tls.hello import hello_progress
from proxy.net.tls.shared import TlsShared
from tests.support.clients.list_clients import turns


class Book:
    """The registry of all sessions: who has ended, and why."""

    def __init__(self) -> None:
        self.ends: list[tuple[Arrival, DisconnectCause]] = []

    def add(self, session: Arrival, since: float) -> None:
        """Keep no time."""

    def ended(self, session: Arrival, cause: DisconnectCause) -> None:
        self.ends.append((session, cause))


class Waiting:
    """Clients of one TLS port that have sent nothing yet, on a clock set by hand."""

    def __init__(self, count: int) -> None:
        loop, nothing = asyncio.get_running_loop(), cast(Any, None)
        self.now, self.book, self.counters = 0.0, Book(), Counters(DisconnectCause)
        shared = TlsShared(LoopBudget(loop, lambda: self.now))
        log = open_log("debug", "json", io.BytesIO())
        self.arrivals = Arrivals(loop, shared, nothing, 1, self.book, nothing, self.counters.tls, log)
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.clients: list[Arrival] = []
        for near, _ in self.pairs:
            near.setblocking(False)
            self.clients.append(self.arrivals.take(near, "192.0.2.1", None, 0.0))

    async def close(self) -> None:
        for client in self.clients:
            self.arrivals.end(client, DisconnectCause.CLIENT_CLOSED)
        await self.arrivals.close()
        for _, far in self.pairs:
            far.close()


@pytest.mark.threat("client-hellos-drip")
async def test_a_hello_that_drips_is_looked_at_once_for_each_record_header(monkeypatch: pytest.MonkeyPatch) -> None:
    on, looks = Waiting(1), list[int]()

    def counted(held: bytes) -> tuple[int, int]:
        looks.append(len(held))
        return hello_progress(held)

    monkeypatch.setattr("proxy.net.tls.arrivals.hello_progress", counted)
    ((_, far),) = on.pairs
    records = b"\x16\x03\x01\x00\x32" + b"\x01\x00\x40\x00" + bytes(46) + b"\x16\x03\x01\x00\x32" + bytes(50)
    for byte in records:
        far.send(bytes((byte,)))
        await turns(2)
    # The first byte, the header of the first record, that of the message, and that of the second record.
    assert looks == [1, 5, 9, 60]
    far.send(b"\x17" * 5)
    await turns(2)
    assert [cause for _, cause in on.book.ends] == [DisconnectCause.TLS_HANDSHAKE_FAILED]
    await on.close()


@pytest.mark.threat("client-hellos-drip")
async def test_clients_that_are_heard_leave_the_time_of_an_iteration_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    on = Waiting(2 * EVENTS_AT_ONCE + 1)
    heard, look = list[Arrival](), on.arrivals._look

    def costly(arrival: Arrival) -> None:
        on.now += ITERATION_SECONDS
        heard.append(arrival)
        look(arrival)

    monkeypatch.setattr(on.arrivals, "_look", costly)
    for _, far in on.pairs:
        far.send(b"\x16")
    while not heard:
        await turns(1)
    assert len(heard) <= 2 * EVENTS_AT_ONCE
    # Who has more to say stands behind all that have not been heard.
    on.pairs[0][1].send(b"\x03")
    while len(heard) <= len(on.clients):
        await turns(1)
    assert heard == [*on.clients, on.clients[0]]
    await on.close()


async def test_a_client_whose_look_raises_is_ended_and_costs_no_other_its_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on = Waiting(5)
    arrivals, book, waiting = on.arrivals, on.book, on.clients
    look = arrivals._look

    def fragile(arrival: Arrival) -> None:
        if arrival is waiting[2]:
            raise ValueError
        look(arrival)

    monkeypatch.setattr(arrivals, "_look", fragile)
    for _, far in on.pairs:
        # No ClientHello: each of these clients is refused as soon as it is heard.
        far.send(b"GET /")
    await turns(5)
    assert len(arrivals) == 0
    causes = [DisconnectCause.NOT_TLS] * 5
    causes[2] = DisconnectCause.INTERNAL_ERROR
    assert sorted(book.ends, key=lambda end: waiting.index(end[0])) == list(zip(waiting, causes, strict=True))
    assert on.counters.shared.internal_errors == {"tls": 1}
    await on.close()
