"""Clients that wait for their handshake: what one of them raises or drips is no other's business."""

import asyncio
import io
import itertools
import socket
from typing import Any, cast

import pytest

from proxy.core.counters import Counters
from proxy.core.errors import DisconnectCause
from proxy.core.log import open_log
from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.net.tls.arrivals import EVENTS_AT_ONCE, Arrival, Arrivals
from proxy.net.tls.hello import hello_progress
from proxy.net.tls.shared import TlsShared
from tests.support.clients.list_clients import turns
from tests.support.configured import configured
from tests.support.cores import core_of
from tests.support.proxies.counted import counted_by

# What no client sends.
FATAL = b"\x16fatal"


class Waiting:
    """Clients of one TLS port that have sent nothing yet, on a clock that stands still or is quick."""

    def __init__(self, count: int, look_seconds: float = 0.0) -> None:
        loop, nothing = asyncio.get_running_loop(), cast(Any, None)
        self.counters = Counters()
        self.ends: list[tuple[Arrival, DisconnectCause]] = []
        # Each look at the clock takes time.
        now = itertools.count()
        shared = TlsShared(LoopBudget(loop, lambda: look_seconds * next(now)))
        log = open_log("debug", "json", io.BytesIO())
        core = core_of(config=configured(maxConcurrentTlsHandshakes=1), counters=self.counters)
        self.arrivals = Arrivals(core, shared, nothing, nothing, self._ended, log)
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.clients: list[Arrival] = []
        for near, _ in self.pairs:
            near.setblocking(False)
            self.clients.append(self.arrivals.take(near, "192.0.2.1", None))

    def _ended(self, arrival: Arrival, cause: DisconnectCause) -> None:
        self.ends.append((arrival, cause))

    async def close(self) -> None:
        for client in self.clients:
            self.arrivals.end(client, DisconnectCause.CLIENT_CLOSED)
        await self.arrivals.close()
        for _, far in self.pairs:
            far.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Keep what there was of a hello at each look."""
    seen: list[bytes] = []

    def counted(held: bytes) -> tuple[int, int]:
        seen.append(held)
        if held == FATAL:
            raise ValueError
        return hello_progress(held)

    monkeypatch.setattr("proxy.net.tls.arrivals.hello_progress", counted)
    return seen


@pytest.mark.threat("client-hellos-drip")
async def test_a_hello_that_drips_is_looked_at_once_for_each_record_header(looks: list[bytes]) -> None:
    on = Waiting(1)
    ((_, far),) = on.pairs
    records = b"\x16\x03\x01\x00\x32" + b"\x01\x00\x40\x00" + bytes(46) + b"\x16\x03\x01\x00\x32" + bytes(50)
    for byte in records:
        far.send(bytes((byte,)))
        await turns(2)
    # The first byte, the header of the first record, that of the message, and that of the second record.
    assert [len(held) for held in looks] == [1, 5, 9, 60]
    far.send(b"\x17" * 5)
    await turns(2)
    assert [cause for _, cause in on.ends] == [DisconnectCause.TLS_HANDSHAKE_FAILED]
    await on.close()


@pytest.mark.threat("client-hellos-drip")
async def test_clients_that_are_heard_leave_the_time_of_an_iteration_to_others(looks: list[bytes]) -> None:
    on = Waiting(2 * EVENTS_AT_ONCE + 1, look_seconds=2 * ITERATION_SECONDS)
    for _, far in on.pairs:
        far.send(b"\x16")
    while not looks:
        await turns(1)
    assert len(looks) <= 2 * EVENTS_AT_ONCE
    # Who has more to say stands behind all that have not been heard.
    on.pairs[0][1].send(b"\x03\x01\x00\x32")
    while len(looks) <= len(on.clients):
        await turns(1)
    assert [len(held) for held in looks] == [1] * len(on.clients) + [5]
    await on.close()


async def test_a_client_whose_look_raises_is_ended_and_costs_no_other_its_event(looks: list[bytes]) -> None:
    on = Waiting(5)
    for number, (_, far) in enumerate(on.pairs):
        # No ClientHello: each of the other clients is refused as soon as it is heard.
        far.send(FATAL if number == 2 else b"GET /")
    await turns(5)
    assert (len(on.arrivals), looks) == (0, [FATAL])
    causes = [DisconnectCause.NOT_TLS] * 5
    causes[2] = DisconnectCause.INTERNAL_ERROR
    assert sorted(on.ends, key=lambda end: on.clients.index(end[0])) == list(zip(on.clients, causes, strict=True))
    assert counted_by(on.counters, "internal_errors") == {"tls": 1}
    await on.close()
