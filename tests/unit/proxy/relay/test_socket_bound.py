"""The bound in sum for relayed sockets: when windows become narrow, who is ended, and in which order."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core.addresses import host_network
from proxy.core.errors import DisconnectCause
from proxy.net.sockets import used_of
from proxy.relay.engine import DRIPPED_THROUGH, NOT_PAUSED, PauseReason
from proxy.relay.engines import RelayEngines
from proxy.relay.memory.sockets import NO_SOCKET_MEMORY, SocketMemory
from proxy.relay.relay_crowds import RelayCrowds
from proxy.relay.socket_bound import (
    AFTER_PERCENT,
    LOADS_A_STEP,
    LOADS_AN_END,
    TIGHT_PERCENT,
    SocketBound,
    SocketLoad,
    to_end,
)

LIMIT = 1000
HOME = "192.0.2.1"


class FakeRelay:
    """A relay that the threads have, with the pauses of its client."""

    def __init__(self, size: int, moved: int = 0, paused: PauseReason = NOT_PAUSED, *, of: str = HOME) -> None:
        self.size, self.moved_lately, self.network = size, moved, of
        self._paused = paused
        self.cause: DisconnectCause | None = None

    def socket_bytes(self) -> SocketMemory:
        return NO_SOCKET_MEMORY

    def snapshot(self) -> Any:
        return SimpleNamespace(paused=(self._paused, NOT_PAUSED))

    def abort(self, cause: DisconnectCause) -> None:
        self.cause = cause


class Origins(RelayCrowds):
    """Where relays come from, and which of them lead to strangers: at the last look, and when somebody asks."""

    def __init__(self, strangers: Iterable[FakeRelay] = (), *, ended: Any = None) -> None:
        self.strangers = set(strangers)
        self.asked: list[FakeRelay] = []
        self.known_by_now: set[FakeRelay] = set()
        self._ended = ended

    def network_of(self, relay: Any) -> str | None:
        return None if relay is self._ended else relay.network

    def is_stranger(self, relay: Any) -> bool:
        return relay in self.strangers

    def still_stranger(self, relay: Any) -> bool:
        self.asked.append(relay)
        self.strangers -= self.known_by_now
        return relay in self.strangers


def ended_of(relays: Iterable[FakeRelay], too_much: int, origins: Origins | None = None) -> list[Any]:
    """Give the relays that end, in their order."""
    loads = [load(each) for each in relays]
    found = to_end(loads, too_much, int(DRIPPED_THROUGH), origins or Origins())
    return [each.relay for each in found if each is not None]


def load(relay: Any) -> SocketLoad:
    return SocketLoad(relay, relay.size, relay.moved_lately)


async def look(bound: SocketBound, held: SocketMemory) -> None:
    await bound.look(held, partial(asyncio.sleep, 0))


def bounded(*of_threads: Any) -> tuple[SocketBound, list[bool], list[str]]:
    tight: list[bool] = []
    lines: list[str] = []
    log: Any = SimpleNamespace(warning=lambda event, **fields: lines.append(event))
    return SocketBound(LIMIT, tight.append, lambda: map(load, of_threads), Origins(), log, lambda: 5.0), tight, lines


def test_those_that_stand_still_end_first_then_the_paused_and_those_that_move_last() -> None:
    moves, small, large = FakeRelay(900, moved=900), FakeRelay(10, moved=9), FakeRelay(20)
    paused = FakeRelay(500, paused=PauseReason.THRESHOLD)
    slowed = FakeRelay(400, paused=PauseReason.RATE)
    assert ended_of((moves, paused, small, slowed, large), 10**6) == [large, small, paused, slowed, moves]


@pytest.mark.parametrize(("too_much", "ended"), [(0, 0), (1, 1), (20, 1), (21, 2), (10**6, 3)])
def test_no_more_end_than_have_to(too_much: int, ended: int) -> None:
    assert len(ended_of([FakeRelay(size) for size in (20, 10, 5)], too_much)) == ended


@pytest.mark.threat("standing-relays-kernel-memory")
def test_relays_to_strangers_end_before_all_others_however_little_each_holds() -> None:
    honest = [FakeRelay(size) for size in (2000, 250)]
    strangers = [FakeRelay(size, moved, of="192.0.2.66") for size, moved in ((100, 0), (90, 0), (110, 900))]
    origins = Origins(strangers)
    # Of those the one that moves ends last.
    assert ended_of([*honest, *strangers], 300, origins) == strangers
    assert ended_of([*honest, *strangers], 301, origins) == [*strangers, honest[0]]


def test_a_relay_whose_target_is_known_by_now_is_no_stranger_and_few_are_asked() -> None:
    named, other, later = FakeRelay(100), FakeRelay(90), FakeRelay(80)
    origins = Origins([named, other, later])
    origins.known_by_now = {named}
    assert ended_of([named, other, later], 90, origins) == [other]
    assert origins.asked == [named, other]
    # Then it ends as one of the others.
    assert ended_of([named, other, later], 180, origins) == [other, later, named]


def test_the_network_with_most_memory_gives_until_another_has_more() -> None:
    crowd = [FakeRelay(10, of="192.0.2.66") for _ in range(20)]
    large = [FakeRelay(60), FakeRelay(50)]
    # 200 of the crowd, 110 of the others.
    assert ended_of([*large, *crowd], 90) == [*crowd[:-10:-1]]
    assert ended_of([*large, *crowd], 100)[-1] is large[0]


@pytest.mark.threat("standing-relays-kernel-memory")
def test_the_networks_of_one_site_are_one_crowd_and_the_largest_of_them_gives() -> None:
    crowd = [FakeRelay(10, of=host_network(f"2001:db8:1:{number:x}::1")) for number in range(20)]
    neighbour = FakeRelay(30, of=host_network("2001:db8:2::1"))
    double = FakeRelay(10, of=crowd[7].network)
    found = ended_of([neighbour, *crowd, double], 170)
    assert neighbour not in found
    assert found[0].network == crowd[7].network


async def test_windows_become_narrow_at_half_of_the_limit_and_wide_again_below() -> None:
    bound, tight, _ = bounded()
    for size in (0, LIMIT * TIGHT_PERCENT // 100 - 1, LIMIT * TIGHT_PERCENT // 100, LIMIT - 1, 10):
        await look(bound, SocketMemory(size, 0))
    assert tight == [False, False, True, True, False]
    assert bound.tight is False


async def test_below_the_limit_nobody_ends_and_at_the_limit_those_with_memory_give() -> None:
    relays: list[Any] = [FakeRelay(60), FakeRelay(70), FakeRelay(0)]
    bound, _, lines = bounded(*relays)
    await look(bound, SocketMemory(LIMIT - 1, 0))
    assert (bound.ended, lines) == (0, [])
    # Both sides count, and the rest is below AFTER_PERCENT.
    await look(bound, SocketMemory(LIMIT - 200, 200))
    assert LIMIT * (100 - AFTER_PERCENT) // 100 == 100
    assert [each.cause for each in relays] == [DisconnectCause.MEMORY_LIMIT, DisconnectCause.MEMORY_LIMIT, None]
    assert (bound.ended, len(lines)) == (2, 1)


class Steps(Origins):
    """Count the relays that are asked for, or ended, between two pauses of a sweep of `relays`."""

    def __init__(self, strangers: Iterable[FakeRelay] = ()) -> None:
        super().__init__(strangers)
        self.done = [0]
        self.at_pause: Callable[[int], None] = lambda number: None

    def network_of(self, relay: Any) -> str | None:
        self.done[-1] += 1
        return None if relay.cause is not None else relay.network

    def sweep(self, relays: list[Any]) -> Awaitable[SocketMemory]:
        """Sweep with a limit that all relays together reach: a tenth of their memory has to go."""

        async def pause() -> None:
            self.at_pause(len(self.done))
            self.done.append(0)

        log: Any = SimpleNamespace(warning=lambda event, **fields: None)
        limit = sum(each.size for each in relays)
        bound = SocketBound(limit, lambda tight: None, lambda: map(load, relays), self, log, lambda: 5.0)
        native: Any = SimpleNamespace(socket_memory=lambda: SocketMemory(limit, 0))
        return RelayEngines(native, native, bound).weigh(relays, pause)


@pytest.mark.threat("standing-relays-kernel-memory")
@pytest.mark.parametrize("networks", [1, 50, 5000])
@pytest.mark.parametrize("kind", ["known", "strangers", "known by now", "paused", "moving"])
async def test_of_thousands_of_relays_few_are_looked_at_in_one_step(kind: str, networks: int) -> None:
    moved, paused = (10 if kind == "moving" else 0), (PauseReason.THRESHOLD if kind == "paused" else NOT_PAUSED)
    relays = [FakeRelay(10, moved, paused, of=f"network {number % networks}") for number in range(5000)]
    steps = Steps(relays if kind in ("strangers", "known by now") else ())
    steps.known_by_now = set(relays) if kind == "known by now" else set()
    await steps.sweep(relays)
    assert sum(each.cause is not None for each in relays) == 500
    assert max(steps.done) <= LOADS_A_STEP
    ended_in_one = LOADS_A_STEP // LOADS_AN_END + 1
    assert len(steps.done) >= 500 // ended_in_one


def test_memory_allocated_ahead_may_be_below_zero_for_a_moment() -> None:
    def told(ahead: int) -> bytes:
        numbers = (100, 0, 0, 0, ahead, 10, 0, 1)
        return b"".join(number.to_bytes(4, "little", signed=number < 0) for number in numbers)

    assert used_of(told(5)) == 116
    assert used_of(told(-4096)) == 111
