"""The pause of accepting, in virtual time."""

import io

import pytest

from proxy.clients.accepting import Accepting
from proxy.core.log import open_log
from tests.support.loops.clock import ManualClock


def made() -> tuple[Accepting, ManualClock, io.BytesIO]:
    clock, file = ManualClock(), io.BytesIO()
    return Accepting(clock, open_log("info", "json", file)), clock, file


def test_a_pause_with_a_time_ends_by_itself_and_says_so() -> None:
    accepting, clock, file = made()
    accepting.pause(60.0)
    clock.advance(59.9)
    assert accepting.paused
    assert accepting.seconds_left == pytest.approx(0.1)
    clock.advance(0.1)
    assert (accepting.paused, accepting.seconds_left) == (False, None)
    assert b"new clients are taken again" in file.getvalue()


@pytest.mark.parametrize("second", [None, 60.0])
def test_a_second_pause_replaces_the_time_of_the_first(second: float | None) -> None:
    accepting, clock, _ = made()
    accepting.pause(10.0)
    clock.advance(5.0)
    accepting.pause(second)
    clock.advance(30.0)
    assert accepting.paused
    clock.advance(30.0)
    assert accepting.paused == (second is None)
