"""Clients that wait for their handshake: what one of them raises is no other's business."""

import asyncio
import io
import socket
from typing import Any, cast

import pytest

from proxy.app.metrics.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.net.tls.arrivals import Arrival, Arrivals
from tests.support.clients.list_clients import turns


class Book:
    """The registry of all sessions: who has ended, and why."""

    def __init__(self) -> None:
        self.ends: list[tuple[Arrival, DisconnectCause]] = []

    def add(self, session: Arrival, since: float) -> None:
        """Keep no time."""

    def ended(self, session: Arrival, cause: DisconnectCause) -> None:
        self.ends.append((session, cause))


async def test_a_client_whose_look_raises_is_ended_and_costs_no_other_its_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing, book, counters = cast(Any, None), Book(), Counters(DisconnectCause)
    log = open_log("debug", "json", io.BytesIO())
    arrivals = Arrivals(asyncio.get_running_loop(), nothing, nothing, 1, book, nothing, counters.tls, log)
    pairs = [socket.socketpair() for _ in range(5)]
    waiting = []
    for near, _ in pairs:
        near.setblocking(False)
        waiting.append(arrivals.take(near, "192.0.2.1", None, 0.0))
    look = arrivals._look

    def fragile(arrival: Arrival) -> None:
        if arrival is waiting[2]:
            raise ValueError
        look(arrival)

    monkeypatch.setattr(arrivals, "_look", fragile)
    for _, far in pairs:
        # No ClientHello: each of these clients is refused as soon as it is heard.
        far.send(b"GET /")
    await turns(5)
    assert len(arrivals) == 0
    causes = [DisconnectCause.NOT_TLS] * 5
    causes[2] = DisconnectCause.INTERNAL_ERROR
    assert sorted(book.ends, key=lambda end: waiting.index(end[0])) == list(zip(waiting, causes, strict=True))
    assert counters.shared.internal_errors == {"tls": 1}
    await arrivals.close()
    for _, far in pairs:
        far.close()
