"""Recorded memory under other marks: the same decisions as the proxy's own throttles, sample for sample."""

import random

import pytest

from pipeline.core import marks as ours
from pipeline.core.errors import PipelineError
from pipeline.core.marks import (
    ADAPTIVE_MARKS,
    HOLD_SECONDS,
    THRESHOLD_MARKS,
    Marks,
    MarksThrottle,
    given_marks,
    replay_marks,
)
from proxy.config.config import Config
from proxy.overload import adaptive, samples
from proxy.overload.adaptive import AdaptiveSettings, AdaptiveThrottle
from proxy.overload.settings import OverloadSettings
from proxy.overload.threshold import RelaySample, ThresholdSettings, ThresholdThrottle
from proxy.overload.topic_choice import TopicChoice
from proxy.relay.topic_slots import SlotSample

PAIRS = [Marks(0.85, 0.70), Marks(0.85, 0.75), Marks(0.9, 0.5), Marks(0.61, 0.6)]
BYTES, MESSAGES = 1 << 30, 1 << 20
WARM_UP_SECONDS = 200


def ratios(seed: int) -> list[float | None]:
    """Walk through calm, pressure, unknown memory, and values exactly at marks."""
    chance = random.Random(seed)
    found: list[float | None] = []
    ratio = 0.6
    for _ in range(600):
        ratio = min(1.0, max(0.4, ratio + chance.uniform(-0.06, 0.06)))
        found.append(chance.choice([None, 0.85, 0.7, 0.75]) if chance.random() < 0.05 else ratio)
    return [*found, *[0.3] * 10]


def adaptive_shares(given: list[float | None], pair: Marks) -> list[float]:
    """Run the proxy's adaptive throttle over one topic that always sends alike; give its share of the natural rate."""
    settings = AdaptiveSettings(
        interval_seconds=1.0, memory=samples.Marks(*pair), backlog=samples.Marks(0.9, 0.75), backlog_limit_bytes=0,
        min_rate_factor=ours.MIN_RATE_FACTOR, max_rate_change=ours.MAX_CHANGE, shares_by_bytes=False,
        observe_only=False, topics=TopicChoice(("*",), ()),
    )  # fmt: skip
    throttle = AdaptiveThrottle(settings)
    shares = []
    for second, ratio in enumerate([*[0.0] * WARM_UP_SECONDS, *given]):
        sample = SlotSample(0, "persistent://t/n/x", second * BYTES, second * MESSAGES, False, 1)
        list(throttle.evaluate(float(second), ratio, [sample], {}))
        topic = throttle.topics[sample.topic]
        shares.append(1.0 if topic.bytes_rate is None else topic.bytes_rate / topic.natural_bytes)
    return shares[WARM_UP_SECONDS:]


def threshold_pauses(given: list[float | None], pair: Marks) -> list[bool]:
    """Run the proxy's threshold throttle over one connection; say when it is paused."""
    settings = ThresholdSettings(
        marks=samples.Marks(*pair), hard=0.99, drip_seconds=5.0, max_pause_seconds=20.0, read_bytes=65_536,
        enabled=True, observe_only=False,
    )  # fmt: skip
    throttle = ThresholdThrottle(settings, lambda count: 0)
    found = []
    for second, ratio in enumerate(given):
        throttle.step(float(second), ratio, 1 << 30, [RelaySample(1, False, 0)])
        found.append(1 in throttle)
    return found


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("seed", range(4))
def test_replay_decides_what_the_throttles_of_the_proxy_decide(pair: Marks, seed: int) -> None:
    given = ratios(seed)
    throttle = MarksThrottle(pair)
    steps = [throttle.step(second, ratio) for second, ratio in enumerate(given)]
    assert [step.share for step in steps] == pytest.approx(adaptive_shares(given, pair), abs=1e-6)
    assert [step.paused for step in steps] == threshold_pauses(given, pair)
    assert throttle.is_calm
    assert any(step.paused for step in steps)
    assert min(step.share for step in steps) == pytest.approx(0.1)


def test_values_of_the_rules_are_the_defaults_of_the_proxy() -> None:
    settings = OverloadSettings.of(Config())
    assert tuple(settings.threshold.marks) == THRESHOLD_MARKS
    assert tuple(settings.adaptive.memory) == ADAPTIVE_MARKS
    assert (settings.adaptive.min_rate_factor, settings.adaptive.max_rate_change) == (
        ours.MIN_RATE_FACTOR,
        ours.MAX_CHANGE,
    )
    assert settings.adaptive.interval_seconds == 1.0
    assert (adaptive.CLOSE, adaptive.SMALLEST_STEP) == (ours.CLOSE, ours.SMALLEST_STEP)


def test_memory_that_nobody_recorded_for_long_slows_nobody() -> None:
    steps = list(replay_marks([(1000, 0.85), (5000, 0.5)], Marks(0.85, 0.7)))
    pressed = [step.second for step in steps if step.pressure > 0]
    assert pressed == list(range(1000, 1000 + HOLD_SECONDS))
    # Four steps of a quarter lead back to the natural rate, one says that it is; then nothing is said.
    climb = [round(step.share, 3) for step in steps if 1000 + HOLD_SECONDS <= step.second < 5000]
    assert climb == [0.35, 0.6, 0.85, 1.0, 1.0]
    assert [step.second for step in steps if step.second >= 5000] == list(range(5000, 5000 + HOLD_SECONDS))


def test_options_name_every_pair_whose_low_mark_is_below_the_high_one() -> None:
    assert given_marks(None, None) == ()
    assert given_marks("0.9", None) == (Marks(0.9, 0.75),)
    assert given_marks("0.8,0.9", "0.7, 0.85") == (Marks(0.8, 0.7), Marks(0.9, 0.7), Marks(0.9, 0.85))


@pytest.mark.parametrize(
    ("high", "low", "said"),
    [
        ("0.85,x", None, "--overload-high: got 'x', expected fractions"),
        ("85", None, "--overload-high: got '85', expected fractions"),
        (None, "nan", "--overload-low: got 'nan', expected fractions"),
        ("0.5", "0.5,0.6", "expected at least one below --overload-high"),
        ("0.9,0.91,0.92,0.93,0.94,0.95,0.96", "0.5,0.6,0.7", "got 21 pairs, expected at most 20"),
    ],
)
def test_marks_that_make_no_sense_are_refused(high: str | None, low: str | None, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        given_marks(high, low)
