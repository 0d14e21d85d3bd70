"""Load shapes through the real controllers: memory stays bounded, nothing swings, everybody comes back."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.throttle_sim.draw import PALETTES, of_proxies, of_run
from benchmarks.throttle_sim.plant import Point, Run
from benchmarks.throttle_sim.shapes import MANY_SMALL, MB, SHAPES, Shape

BY_NAME = {shape.name: shape for shape in SHAPES}
CONSTANT = Shape("constant", "100 MB/s, of which the broker takes 60", lambda _: {"a": 100 * MB}, 60 * MB, 300)


def crossings(points: list[Point], target: float) -> int:
    """Return how often memory crosses a target by more than a point."""
    sides = [point.ratio > target for point in points if abs(point.ratio - target) > 0.01]
    return sum(one is not other for one, other in pairwise(sides))


@pytest.mark.parametrize("delay", [0.1, 1.0])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_memory_stays_below_its_limit_and_falls_when_the_load_does(shape: Shape, delay: float) -> None:
    points = Run(shape, delay=delay).play()
    assert max(point.ratio for point in points) < 1.0
    free = Run(shape, delay=delay, throttled=False).play()
    assert max(point.ratio for point in free) > 1.0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_late_signal_lets_memory_rise_further_but_never_as_far_as_without_the_throttle(shape: Shape) -> None:
    late, free = (Run(shape, delay=5.0, throttled=throttled).play() for throttled in (True, False))
    assert max(point.ratio for point in late) < max(point.ratio for point in free)


# What a constant surplus adds within the age of the signal must fit between the marks, or rates swing.
@pytest.mark.parametrize(("delay", "limit_bytes"), [(0.1, 2e9), (1.0, 2e9), (3.0, 2e9), (5.0, 4e9)])
def test_constant_load_makes_no_limit_cycle(monkeypatch: pytest.MonkeyPatch, delay: float, limit_bytes: float) -> None:
    monkeypatch.setattr("benchmarks.throttle_sim.plant.LIMIT_BYTES", limit_bytes)
    points = Run(CONSTANT, delay=delay).play()
    settled = points[-60:]
    middle = sum(point.ratio for point in settled) / len(settled)
    assert crossings(points[100:], middle) <= 1
    assert max(point.passed for point in settled) - min(point.passed for point in settled) < 0.05 * 60 * MB


def test_rates_are_natural_again_soon_after_the_pressure() -> None:
    points = Run(BY_NAME["step"]).play()
    free_at = next(point.at for point in points if point.at > 150 and point.pressure == 0)
    back_at = next(point.at for point in points if point.at > 150 and point.allowed >= 0.999 * point.natural)
    assert back_at <= free_at + 4


@pytest.mark.parametrize("proxies", [1, 3])
def test_many_small_topics_are_slowed_while_each_proxy_sees_enough_of_them(proxies: int) -> None:
    assert max(point.ratio for point in Run(MANY_SMALL, proxies).play()) < 0.85


def test_ten_proxies_never_slow_topics_whose_shares_are_below_the_least_rate() -> None:
    points, free = Run(MANY_SMALL, 10).play(), Run(MANY_SMALL, throttled=False).play()
    assert [point.passed for point in points] == pytest.approx([point.passed for point in free])
    assert max(point.ratio for point in points) > 0.95


PARTS: dict[str, Callable[[float], tuple[float, ...]]] = {
    "uneven": lambda _: (0.8, 0.15, 0.05),
    "one-ends": lambda now: (1 / 3, 1 / 3, 1 / 3) if now < 90 else (0.5, 0.5, 0.0),
    "one-comes": lambda now: (0.5, 0.5, 0.0) if now < 90 else (1 / 3, 1 / 3, 1 / 3),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_parts_that_differ_or_change_add_up_to_nearly_the_same(parts: Callable[[float], tuple[float, ...]]) -> None:
    one, several = Run(BY_NAME["step"]).play(), Run(BY_NAME["step"], 3, parts=parts).play()
    assert max(point.ratio for point in several) == pytest.approx(max(point.ratio for point in one), abs=0.03)
    assert sum(p.passed for p in several) == pytest.approx(sum(p.passed for p in one), rel=0.02)


@pytest.mark.parametrize("proxies", [3, 10])
def test_several_proxies_add_up_to_what_one_would_do(proxies: int) -> None:
    one, several = (Run(BY_NAME["step"], number).play() for number in (1, proxies))
    assert max(point.ratio for point in several) == pytest.approx(max(point.ratio for point in one), abs=0.02)
    assert sum(p.passed for p in several) == pytest.approx(sum(p.passed for p in one), rel=0.02)


def test_small_topics_beside_a_big_one_keep_their_rate_with_shares_by_bytes() -> None:
    def small(run: Run) -> float:
        run.play()
        return sum(held for topic, held in run.held.items() if topic != "big")

    shape = replace(BY_NAME["small-and-big"], seconds=60, drain=1.0)
    by_bytes, alike = small(Run(shape)), small(Run(replace(shape, shares_by_bytes=False)))
    assert by_bytes > 1.05 * alike


def test_topic_with_a_slow_backlog_is_slowed_and_the_other_is_not() -> None:
    run = Run(BY_NAME["backlog"])
    points = run.play()[100:140]
    assert all(30 * MB <= point.passed < 50 * MB for point in points)


def test_pictures_are_the_same_for_the_same_run_and_have_both_themes() -> None:
    points = Run(BY_NAME["step"]).play()[:40]
    light, dark = (of_run("a < b", points, points, palette, backlog=False) for palette in PALETTES)
    assert light == of_run("a < b", points, points, PALETTES[0], backlog=False)
    assert light != dark
    assert "a &lt; b" in light
    assert "K = 1" in of_proxies("t", [("K = 1", points)], PALETTES[1])
