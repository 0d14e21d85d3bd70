"""The read time-out of a relay: which bytes it counts, and what there is without one."""

import pytest

from proxy.core.counters import Counters
from proxy.net import ended_sockets
from proxy.relay.traffic import RelayTraffic

TIMEOUT = 80.0


class Clock:
    """A relay's traffic, at which the test looks at moments of its choice."""

    def __init__(self, timeout: float = TIMEOUT, *, half_open: bool = False) -> None:
        self.traffic = RelayTraffic(Counters(), 0.0, timeout)
        self.half_open = half_open

    def over(self, now: float, untaken: int = 0, *, paused: bool = False) -> bool:
        return self.traffic.tick(now, 0, lambda: untaken, paused=paused, half_open=self.half_open)


def test_a_relay_on_which_nothing_moves_ends_with_the_timeout() -> None:
    clock = Clock()
    assert [clock.over(now, untaken=1000) for now in (40.0, 60.0, 79.9, 80.0)] == [False, False, False, True]


def test_bytes_that_a_peer_takes_begin_the_timeout_anew() -> None:
    clock = Clock()
    assert not clock.over(40.0, untaken=1000)
    assert not clock.over(79.0, untaken=999)
    assert not clock.over(158.0, untaken=999)
    assert clock.over(159.0, untaken=999)


def test_bytes_that_a_peer_took_since_the_look_before_count_at_the_end_too() -> None:
    clock = Clock()
    assert not clock.over(40.0, untaken=1000)
    assert not clock.over(80.0, untaken=1)
    assert clock.over(160.0, untaken=1)


def test_more_bytes_that_wait_are_no_bytes_that_were_taken() -> None:
    clock = Clock()
    assert not clock.over(40.0, untaken=1000)
    assert clock.over(80.0, untaken=2000)


def test_what_waited_before_a_read_or_a_pause_is_no_measure() -> None:
    clock = Clock()
    assert not clock.over(40.0, untaken=1000)
    clock.traffic.add(0, 500)
    assert not clock.over(50.0, untaken=0)
    assert not clock.over(100.0, untaken=10)
    assert clock.over(130.0, untaken=10)
    assert not clock.over(131.0, untaken=0, paused=True)
    assert not clock.over(180.0, untaken=5)
    assert clock.over(211.0, untaken=5)


@pytest.mark.parametrize(("half_open", "ends"), [(False, False), (True, True)])
def test_without_a_timeout_only_a_half_closed_relay_ends(half_open: bool, ends: bool) -> None:
    clock = Clock(0.0, half_open=half_open)
    last = ended_sockets.LONGEST_SECONDS
    assert not clock.over(0.6 * last, untaken=7)
    assert not clock.over(last - 0.1, untaken=7)
    assert clock.over(last, untaken=7) is ends


def test_with_a_timeout_a_half_closed_relay_has_no_other() -> None:
    clock = Clock(10 * ended_sockets.LONGEST_SECONDS, half_open=True)
    assert not clock.over(9 * ended_sockets.LONGEST_SECONDS)
    assert clock.over(10 * ended_sockets.LONGEST_SECONDS)
