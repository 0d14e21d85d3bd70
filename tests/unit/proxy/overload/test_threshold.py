"""The threshold throttle in virtual time (Q6 to Q11)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.overload.samples import Marks
from proxy.overload.threshold import (
    RelaySample,
    ThresholdDecisions,
    ThresholdSettings,
    ThresholdThrottle,
    ThrottleState,
)

MB = 1_000_000
SETTINGS = ThresholdSettings(
    marks=Marks(high=0.85, low=0.75), drip_seconds=5.0, max_pause_seconds=20.0, read_bytes=250_000,
    enabled=True, observe_only=False,
)  # fmt: skip
LIMIT = 100 * MB
PRODUCERS = [RelaySample(number, consumes=False, moved_bytes=0) for number in range(4)]
MIXED = RelaySample(9, consumes=True, moved_bytes=0)


class AtOnce(ThresholdThrottle):
    """Takes all steps of a decision at once."""

    def step(
        self, now: float, ratio: float | None, limit_bytes: int, relays: Sequence[RelaySample]
    ) -> ThresholdDecisions:
        made = self.begun()
        for _ in self.steps(made, now, ratio, limit_bytes, relays):
            pass
        return made


def throttle(changed: ThresholdSettings = SETTINGS, start: int = 0) -> AtOnce:
    return AtOnce(changed, lambda count: start % count)


def paused_throttle(relays: list[RelaySample] | None = None) -> AtOnce:
    made = throttle()
    made.step(0.0, 0.9, LIMIT, PRODUCERS if relays is None else relays)
    return made


def test_q6_high_mark_is_inclusive_and_one_sample_is_enough() -> None:
    assert throttle().step(0.0, 0.8499, LIMIT, PRODUCERS).paused == []
    assert throttle().step(0.0, 0.85, LIMIT, PRODUCERS).paused == [0, 1, 2, 3]


def test_q6_low_mark_is_exclusive() -> None:
    made = paused_throttle()
    assert made.step(1.0, 0.75, LIMIT, PRODUCERS).after is ThrottleState.PAUSED
    assert made.step(2.0, 0.7499, LIMIT, PRODUCERS).before is ThrottleState.PAUSED
    assert made.state is not ThrottleState.PAUSED


def test_q7_connections_are_released_in_turns_in_the_order_of_pausing_from_a_random_start() -> None:
    made = throttle(start=2)
    made.step(0.0, 0.9, LIMIT, PRODUCERS)
    # Room for two reads below the low mark.
    assert made.step(1.0, 0.745, LIMIT, PRODUCERS).resumed == [2, 3]
    last = made.step(1.5, 0.745, LIMIT, PRODUCERS)
    assert (last.before, last.resumed, last.after) == (ThrottleState.RESUMING, [0, 1], ThrottleState.NORMAL)


def test_q7_released_reads_never_exceed_the_room_below_the_low_mark_but_one() -> None:
    made = paused_throttle([RelaySample(number, consumes=False, moved_bytes=0) for number in range(100)])
    while made.state is not ThrottleState.NORMAL:
        released = made.step(1.0, 0.73, LIMIT, ()).resumed
        assert len(released) * SETTINGS.read_bytes <= 0.02 * LIMIT + 1


@pytest.mark.parametrize("limit", [LIMIT, 0])
def test_q7_memory_that_stays_between_the_marks_gives_everybody_turns_of_equal_length(limit: int) -> None:
    relays = [RelaySample(number, consumes=False, moved_bytes=0) for number in range(8)]
    made = paused_throttle(relays)
    # Room for three reads; then there is none for more.
    read = set(made.step(0.5, 0.742, LIMIT, relays).resumed)
    assert len(read) == 3
    turns = dict.fromkeys(range(8), 0)
    for step in range(2, 2 * 5 * 16 + 1):
        found = made.step(step / 2, 0.8, limit, relays)
        assert len(found.paused) == len(found.resumed) <= 3
        read = (read - set(found.paused)) | set(found.resumed)
        assert (len(read), len(made), found.after) == (3, 5, ThrottleState.RESUMING)
        for number in read:
            turns[number] += 1
    assert max(turns.values()) <= 1.4 * min(turns.values())
    assert sorted(made.step(99.0, 0.85, LIMIT, relays).paused) == sorted(read)


def test_q8_connection_that_consumes_too_is_paused_last() -> None:
    made, relays = throttle(), [MIXED, *PRODUCERS]
    assert made.step(0.0, 0.9, LIMIT, relays).paused == [0, 1, 2, 3]
    assert made.step(0.5, 0.9, LIMIT, relays).paused == [9]


def test_q8_connection_that_consumes_too_is_paused_at_once_above_the_hard_mark_or_alone() -> None:
    assert throttle().step(0.0, 0.95, LIMIT, [MIXED, *PRODUCERS]).paused == [0, 1, 2, 3, 9]
    assert throttle().step(0.0, 0.9, LIMIT, [MIXED]).paused == [9]


def test_a_producer_that_comes_during_the_pause_is_paused_too() -> None:
    made = paused_throttle()
    assert made.step(1.0, 0.8, LIMIT, [*PRODUCERS, RelaySample(7, consumes=False, moved_bytes=0)]).paused == [7]


def drips(relay: RelaySample, until: float, ratio: float = 0.9) -> list[float]:
    made, now, found = paused_throttle([relay]), 0.0, []
    while now < until:
        now += 0.5
        if made.step(now, ratio, LIMIT, [relay]).dripped:
            found.append(now)
    return found


def test_q9_paused_connection_passes_a_frame_each_five_seconds() -> None:
    assert drips(PRODUCERS[0], 19.5) == [5.0, 10.0, 15.0]


def test_q9_large_frames_stretch_the_interval_to_25_seconds() -> None:
    large = replace(SETTINGS, max_pause_seconds=100.0)
    made, found, moved = throttle(large), [], 0
    for half in range(140):
        decisions = made.step(half / 2, 0.9, LIMIT, [RelaySample(0, consumes=False, moved_bytes=moved)])
        if decisions.dripped:
            found.append(half / 2)
            moved += 5 * MB
    assert found == [5.0, 30.5, 56.0]


def test_relay_buffer_passes_after_the_longest_pause_and_is_told_apart() -> None:
    made = paused_throttle()
    found = [(now, made.step(now, 0.9, LIMIT, PRODUCERS).opened) for now in range(1, 45)]
    assert [(now, opened) for now, opened in found if opened] == [(20, [0, 1, 2, 3]), (40, [0, 1, 2, 3])]


def test_above_the_hard_mark_nothing_but_drips_passes() -> None:
    made = paused_throttle()
    found = [made.step(float(now), 0.95, LIMIT, PRODUCERS) for now in range(1, 60)]
    assert not any(decisions.opened for decisions in found)
    assert sum(bool(decisions.dripped) for decisions in found) == 11


def test_q10_memory_stays_below_the_line_that_is_promised() -> None:
    """Producers at full speed against a broker that takes a fifth of it."""
    count, rate, window, frame, interval = 20, 1 * MB, 0.25 * MB, 10_000, 0.5
    made, held, drain = throttle(), 0.3 * LIMIT, 0.2 * count * rate
    paused: dict[int, float] = {}
    highest, drips = 0.0, 0
    for step in range(600):
        relays = [RelaySample(number, consumes=False, moved_bytes=0) for number in range(count)]
        found = made.step(step * interval, (held + sum(paused.values())) / LIMIT, LIMIT, relays)
        paused.update(dict.fromkeys(found.paused, 0.0))
        for number in found.resumed:
            held += paused.pop(number)
        drips += len(found.dripped) + len(found.opened)
        held += frame * len(found.dripped) + SETTINGS.read_bytes * len(found.opened)
        held += rate * interval * (count - len(paused))
        # A paused producer fills its receive buffer.
        for number, waiting in paused.items():
            paused[number] = min(window, waiting + rate * interval)
        held = max(0.3 * LIMIT, held - drain * interval)
        highest = max(highest, held + sum(paused.values()))
    line = 0.85 * LIMIT + count * rate * interval + count * window
    assert 0.85 * LIMIT < highest <= line
    assert drips


def test_q11_signal_that_is_not_known_pauses_nobody_and_releases_the_paused() -> None:
    assert throttle().step(0.0, None, 0, PRODUCERS).paused == []
    made = paused_throttle()
    assert made.step(1.0, None, LIMIT, PRODUCERS).resumed == [0, 1, 2, 3]


def test_q11_observe_only_releases_everybody_within_one_sample_and_counts_whom_it_would_pause() -> None:
    made = paused_throttle()
    made.settings = replace(SETTINGS, observe_only=True)
    found = made.step(0.5, 0.9, LIMIT, PRODUCERS)
    assert (found.resumed, found.would_pause, len(made)) == ([0, 1, 2, 3], 4, 0)
    assert made.state is ThrottleState.PAUSED


def test_throttle_that_is_switched_off_releases_everybody_within_one_sample() -> None:
    made = paused_throttle()
    made.settings = replace(SETTINGS, enabled=False)
    found = made.step(0.5, 0.9, LIMIT, PRODUCERS)
    assert (found.resumed, found.after) == ([0, 1, 2, 3], ThrottleState.NORMAL)


def test_clock_that_goes_back_neither_prolongs_nor_shortens_a_pause() -> None:
    made = paused_throttle()
    made.step(4.0, 0.9, LIMIT, PRODUCERS)
    made.step(-1000.0, 0.9, LIMIT, PRODUCERS)
    assert made.longest_pause(-1000.0) == 4.0
    assert made.step(-999.0, 0.9, LIMIT, PRODUCERS).dripped == [0, 1, 2, 3]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1.3)), st.integers(0, 12)), max_size=60))
def test_who_is_paused_is_always_told_once_and_nobody_waits_longer_than_the_interval(
    inputs: list[tuple[float | None, int]],
) -> None:
    made, paused, passed = throttle(), set[int](), dict[int, float]()
    for step, (ratio, count) in enumerate(inputs):
        now = step * 0.5
        relays = [RelaySample(number, consumes=number % 3 == 0, moved_bytes=0) for number in range(count)]
        found = made.step(now, ratio, LIMIT, relays)
        assert paused.isdisjoint(found.paused)
        paused.update(found.paused)
        passed.update(dict.fromkeys(found.paused, now))
        assert paused.issuperset(found.resumed)
        paused.difference_update(found.resumed)
        passed.update(dict.fromkeys([*found.dripped, *found.opened], now))
        assert len(made) == len(paused)
        assert all(now - passed[number] <= SETTINGS.drip_seconds + 0.5 for number in paused)
        if ratio is not None and ratio >= 0.85:
            assert paused.issuperset(number for number in range(count) if number % 3)
    made.settings = replace(SETTINGS, enabled=False)
    assert set(made.step(len(inputs) * 0.5, 0.9, LIMIT, ()).resumed) == paused
