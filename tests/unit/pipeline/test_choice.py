import math
from dataclasses import replace

import pytest

from pipeline.core.choice import (
    Point,
    Target,
    above,
    best_of_each_fleet,
    cheapest,
    refinements,
    why_nothing,
    with_headroom,
)
from pipeline.core.errors import PipelineError
from pipeline.core.model import MIB, Limits

TARGET = Target(load=10, max_refused=0.0, p99_wait_us=250_000)


def point(heap: int, direct: int, refused: int = 0, p99_ms: float = 100, fleet: int = 1, **named: int) -> Point:
    limits = Limits(heap_bytes=heap * MIB, direct_bytes=direct * MIB)
    peaks = {"peak_heap_bytes": heap * MIB, "peak_direct_bytes": direct * MIB} | named
    return Point(limits, fleet, 2 * fleet, 1000, refused, p99_ms * 1000, **peaks)


def test_smallest_memory_that_holds_is_chosen() -> None:
    small, late, middle, large = point(10, 10, refused=1), point(15, 10, p99_ms=250.1), point(20, 10), point(20, 20)
    assert cheapest([large, small, late, middle], TARGET) is middle
    assert cheapest([small, point(15, 10, p99_ms=250)], replace(TARGET, max_refused=0.001)) is small
    # No limit is no answer.
    assert cheapest([point(0, 10), point(10, 0)], TARGET) is None


def test_of_equal_memory_fewer_proxies_win_and_then_less_heap() -> None:
    # 2 x 60 MiB, 4 x 30 MiB; and the same sum with less heap memory.
    one, two, other = point(40, 20), point(20, 10, fleet=2), point(30, 30)
    assert cheapest([two, one], TARGET) is one
    assert cheapest([two, one, other], TARGET) is other


def test_each_fleet_has_its_best_if_anything_holds_there() -> None:
    points = [point(40, 10), point(30, 10), point(10, 10, refused=1, fleet=2)]
    assert best_of_each_fleet(points, TARGET) == {1: points[1]}


def test_refinement_goes_between_what_failed_and_what_held() -> None:
    best = point(40, 8)
    failed = [point(20, 8, refused=5), point(10, 8, refused=9)]
    wanted = refinements([best, *failed], best, TARGET, (MIB, 8 * MIB))
    assert [(each.heap_bytes // MIB, each.direct_bytes // MIB) for each in wanted] == [
        (21, 8),
        (25, 8),
        (30, 8),
        (35, 8),
    ]


def test_refinement_ends_at_whole_mebibytes() -> None:
    best, failed = point(21, 8), point(20, 8, refused=1)
    assert refinements([best, failed], best, TARGET, (MIB, 8 * MIB)) == []


@pytest.mark.parametrize(
    ("heap", "headroom", "least", "expected"),
    [(40, 0.25, 1, 50), (41, 0.25, 1, 52), (40, 0.0, 1, 40), (40, 0.25, 64, 64), (1, 0.1, 1, 2)],
)
def test_headroom_is_rounded_up_and_never_below_the_largest_list(
    heap: int, headroom: float, least: int, expected: int
) -> None:
    limits = with_headroom(Limits(heap_bytes=heap * MIB, direct_bytes=MIB), headroom, (least * MIB, MIB))
    assert limits.heap_bytes == expected * MIB


def test_where_nothing_holds_the_demand_without_limits_is_what_to_try() -> None:
    tried = [point(10, 10, refused=500), point(20, 10, refused=100)]
    free = [
        point(0, 0, fleet=fleet, peak_heap_bytes=heap * MIB + extra, peak_direct_bytes=5 * MIB)
        for fleet, heap, extra in ((4, 60, 0), (1, 70, 1), (2, 65, 0))
    ]
    said = why_nothing(tried, free, TARGET)
    assert "heap 20 MiB and direct 10 MiB on 2 proxies, refuses 100 of 1000" in said
    assert "--heap-mb 71 --direct-mb 5 --fleet 1" in said


def test_where_even_no_limit_holds_memory_is_not_what_is_short() -> None:
    free = [point(0, 0, p99_ms=p99_ms, fleet=fleet) for p99_ms, fleet in ((1700, 1), (900, 4), (1200, 2))]
    said = why_nothing([point(10, 10, refused=5)], free, TARGET)
    assert "memory is not what is short: without any limit and with --fleet 4" in said
    assert "900 ms" in said


@pytest.mark.parametrize(
    "named", [{"max_refused": 1.1}, {"max_refused": math.nan}, {"p99_wait_us": -1}, {"p99_wait_us": math.inf}]
)
def test_target_that_cannot_be_meant_is_refused(named: dict[str, float]) -> None:
    with pytest.raises(PipelineError, match="expected"):
        replace(TARGET, **named)  # type: ignore[arg-type]


def test_point_where_many_answers_wait_to_grow_is_no_answer() -> None:
    tight, wide = point(10, 10, growths_waited=11), point(20, 10, growths_waited=10)
    assert cheapest([tight, wide], TARGET) is wide
    said = why_nothing([tight], [point(0, 0)], TARGET)
    assert "answers of 11 requests wait to grow there" in said


def test_limits_below_the_floor_are_raised_to_it_in_whole_mebibytes() -> None:
    raised = above(Limits(heap_bytes=2 * MIB, direct_bytes=9 * MIB), (3 * MIB + 1, 8 * MIB))
    assert (raised.heap_bytes, raised.direct_bytes) == (4 * MIB, 9 * MIB)
    assert above(Limits(heap_bytes=0), (3 * MIB, 0)).heap_bytes == 0
