"""Test the manual clock, and that a loop satisfies the same protocol."""

import asyncio

from limiter.clock import Clock
from tests.support.loops.clock import ManualClock


def test_time_stands_still_until_advanced() -> None:
    clock = ManualClock(5.0)
    assert clock.time() == 5.0
    clock.advance(2.5)
    assert clock.time() == 7.5


def test_callbacks_run_in_the_order_of_their_moments_and_each_sees_its_own() -> None:
    clock = ManualClock(0.0)
    seen: list[tuple[str, float]] = []
    for name, when in (("late", 3.0), ("early", 1.0), ("early too", 1.0)):
        clock.call_at(when, lambda name: seen.append((name, clock.time())), name)
    clock.advance(2.0)
    assert seen == [("early", 1.0), ("early too", 1.0)]
    clock.advance(1.0)
    assert seen[2:] == [("late", 3.0)]
    assert clock.pending == 0


def test_a_cancelled_timer_does_not_fire() -> None:
    clock = ManualClock()
    seen: list[int] = []
    timer = clock.call_at(clock.time(), seen.append, 1)
    timer.cancel()
    clock.advance(1.0)
    assert seen == []


def test_a_callback_may_ask_for_another_within_the_same_advance() -> None:
    clock = ManualClock(0.0)
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.time())
        if len(seen) < 3:
            clock.call_at(clock.time() + 1.0, again)

    clock.call_at(1.0, again)
    clock.advance(10.0)
    assert seen == [1.0, 2.0, 3.0]


async def test_the_running_loop_keeps_the_same_promises() -> None:
    clock: Clock = asyncio.get_running_loop()
    fired = asyncio.Event()
    seen: list[int] = []
    now = clock.time()
    clock.call_at(now, seen.append, 1).cancel()
    clock.call_at(now, fired.set)
    await fired.wait()
    assert seen == []
    assert clock.time() >= now
