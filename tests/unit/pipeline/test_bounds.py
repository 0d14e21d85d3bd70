from dataclasses import replace

import pytest

from pipeline.core.bounds import direct_for, extrapolated, floor_of, watch_share
from pipeline.core.model import MIB, Limits

RECORDED = Limits(heap_bytes=64 * MIB, direct_bytes=10 * MIB)


def test_floor_is_what_was_seen_which_a_fleet_shares_but_not_the_largest_list() -> None:
    assert floor_of((MIB, MIB), (40 * MIB, 8 * MIB), 1, 100) == (40 * MIB, 8 * MIB)
    assert floor_of((MIB, MIB), (40 * MIB, 8 * MIB), 4, 100) == (10 * MIB, 2 * MIB)
    assert floor_of((12 * MIB, 3 * MIB), (40 * MIB, 8 * MIB), 4, 100) == (12 * MIB, 3 * MIB)


def test_no_less_direct_memory_than_was_seen_is_advised_whatever_part_lists_had() -> None:
    _, lists = floor_of((MIB, MIB), (MIB, 32 * MIB), 1, 50)
    assert direct_for(lists, 50) == 32 * MIB


@pytest.mark.parametrize(
    ("peak", "largest", "load", "fleet", "expected"),
    [
        (0, 0, 10, 1, 0),
        (MIB, 1000, 3, 1, 3),
        (MIB, 1000, 3, 2, 2),  # 1.5, in whole MiB
        (MIB, MIB, 1, 8, 1),  # a frame passes alone or not at all
    ],
)
def test_room_for_watchers_grows_with_the_load_and_is_shared_by_the_fleet(
    peak: int, largest: int, load: int, fleet: int, expected: int
) -> None:
    assert watch_share(peak, largest, load, fleet).size_bytes == expected * MIB


@pytest.mark.parametrize(
    ("heap", "marked"), [(32, False), (31, True), (128, False), (129, True), (0, True), (64, False)]
)
def test_half_to_twice_the_recorded_is_not_extrapolated(heap: int, marked: bool) -> None:
    found = extrapolated(replace(RECORDED, heap_bytes=heap * MIB), RECORDED)
    assert list(found) == (["heap_bytes"] if marked else [])


def test_load_and_other_numbers_are_marked_too() -> None:
    found = extrapolated(replace(RECORDED, max_outstanding_per_broker=256, heap_timeout_us=1), RECORDED, load=3)
    assert set(found) == {"load", "max_outstanding_per_broker", "heap_timeout_us"}


@pytest.mark.parametrize(("percent", "expected"), [(100, 9), (50, 18), (70, 13), (1, 900)])
def test_part_of_direct_memory_is_enough_for_lists(percent: int, expected: int) -> None:
    found = direct_for(9 * MIB, percent)
    assert found == expected * MIB
    assert found * percent // 100 >= 9 * MIB
