"""The bound in sum for relayed sockets: when windows become narrow, who is ended, and in which order."""

import json
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core.errors import DisconnectCause
from proxy.core.log import FIELDS, open_log
from proxy.relay.engine import DRIPPED_THROUGH, NOT_PAUSED, PauseReason
from proxy.relay.memory.bound import AFTER_PERCENT, TIGHT_PERCENT, SocketBound, SocketLoad, to_end
from proxy.relay.memory.sockets import SocketMemory, used_of

LIMIT = 1000


class FakeRelay:
    """A relay that the event loop or the threads have, with the pauses of its client."""

    def __init__(self, size: int, moved: int = 0, paused: PauseReason = NOT_PAUSED, *, on_loop: bool = True) -> None:
        self.size, self.moved_lately = size, moved
        self._paused, self._on_loop = paused, on_loop
        self.cause: DisconnectCause | None = None

    def socket_bytes(self) -> SocketMemory:
        return SocketMemory(self.size if self._on_loop else 0, 0)

    def snapshot(self) -> Any:
        return SimpleNamespace(paused=(self._paused, NOT_PAUSED))

    def abort(self, cause: DisconnectCause) -> None:
        self.cause = cause


def load(relay: Any) -> SocketLoad:
    return SocketLoad(relay, relay.size, relay.moved_lately)


def bounded(*of_threads: Any) -> tuple[SocketBound, list[bool], list[str]]:
    tight: list[bool] = []
    lines: list[str] = []
    log: Any = SimpleNamespace(warning=lambda event, **fields: lines.append(event))
    return SocketBound(LIMIT, tight.append, lambda: map(load, of_threads), log, lambda: 5.0), tight, lines


def test_those_that_stand_still_end_first_then_the_paused_and_those_that_move_last() -> None:
    moves, small, large = FakeRelay(900, moved=900), FakeRelay(10, moved=9), FakeRelay(20)
    paused = FakeRelay(500, paused=PauseReason.THRESHOLD)
    slowed = FakeRelay(400, paused=PauseReason.RATE)
    loads = [load(each) for each in (moves, paused, small, slowed, large)]
    assert [each.relay for each in to_end(loads, 10**6, int(DRIPPED_THROUGH))] == [large, small, paused, slowed, moves]


@pytest.mark.parametrize(("too_much", "ended"), [(0, 0), (1, 1), (20, 1), (21, 2), (10**6, 3)])
def test_no_more_end_than_have_to(too_much: int, ended: int) -> None:
    loads: list[Any] = [load(FakeRelay(size)) for size in (20, 10, 5)]
    assert len(to_end(loads, too_much, 0)) == ended


def test_a_wait_for_the_pool_or_for_a_permit_is_no_pause_of_ours() -> None:
    waits = FakeRelay(50, paused=PauseReason.POOL | PauseReason.WATCH)
    assert to_end([load(FakeRelay(40)), load(waits)], 1, int(DRIPPED_THROUGH)) == [load(waits)]


def test_windows_become_narrow_at_half_of_the_limit_and_wide_again_below() -> None:
    bound, tight, _ = bounded()
    for size in (0, LIMIT * TIGHT_PERCENT // 100 - 1, LIMIT * TIGHT_PERCENT // 100, LIMIT - 1, 10):
        bound.look(SocketMemory(size, 0), ())
    assert tight == [False, False, True, True, False]
    assert bound.tight is False


def test_below_the_limit_nobody_ends_and_at_the_limit_both_engines_give() -> None:
    on_loop, in_thread, empty = FakeRelay(60), FakeRelay(70, on_loop=False), FakeRelay(0)
    bound, _, lines = bounded(in_thread)
    relays: list[Any] = [on_loop, in_thread, empty]
    bound.look(SocketMemory(LIMIT - 1, 0), relays)
    assert (bound.ended, lines) == (0, [])
    # Both sides count, and the rest is below AFTER_PERCENT.
    bound.look(SocketMemory(LIMIT - 200, 200), relays)
    assert LIMIT * (100 - AFTER_PERCENT) // 100 == 100
    assert [each.cause for each in relays] == [DisconnectCause.MEMORY_LIMIT, DisconnectCause.MEMORY_LIMIT, None]
    assert (bound.ended, len(lines)) == (2, 1)


def test_the_warning_has_fields_that_the_log_knows() -> None:
    written = BytesIO()
    log = open_log("warning", "json", written)
    bound = SocketBound(LIMIT, lambda tight: None, lambda: [load(FakeRelay(500))], log, lambda: 5.0)
    bound.look(SocketMemory(LIMIT, 0), ())
    line = json.loads(written.getvalue())
    assert (line["connections"], line["held"], line["limit"]) == (1, LIMIT, LIMIT)
    assert line.keys() & {"connections", "held", "limit"} <= FIELDS.keys()


def test_memory_allocated_ahead_may_be_below_zero_for_a_moment() -> None:
    def told(ahead: int) -> bytes:
        numbers = (100, 0, 0, 0, ahead, 10, 0, 1)
        return b"".join(number.to_bytes(4, "little", signed=number < 0) for number in numbers)

    assert used_of(told(5)) == 116
    assert used_of(told(-4096)) == 111
