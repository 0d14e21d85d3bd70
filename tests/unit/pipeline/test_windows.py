from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.errors import PipelineError
from pipeline.replay.windows import MOST_CHANGES, Window, cut, warm_up_from


def windows(times: list[int], rows: int, limits: list[int] | None = None, batch: int = 3) -> list[Window]:
    arrivals, ids = np.array(times, np.int64), np.array(limits or [0] * len(times), np.int64)
    batches = ((arrivals[at : at + batch], ids[at : at + batch]) for at in range(0, len(times), batch))
    return cut(batches, rows, by_limits=limits is not None)


def test_window_ends_where_limits_change() -> None:
    found = windows([1, 2, 3, 4, 5], rows=10, limits=[7, 7, 8, 8, 7])
    assert [(window.start_us, window.rows, window.limits_id) for window in found] == [(1, 2, 7), (3, 2, 8), (5, 1, 7)]


def test_limits_that_change_all_the_time_are_refused() -> None:
    times = list(range(MOST_CHANGES + 2))
    with pytest.raises(PipelineError, match="eventLogProxyId"):
        windows(times, rows=10, limits=[time % 2 for time in times], batch=500)


def test_warm_up_reaches_back_a_life_and_not_beyond_the_window_before() -> None:
    window = Window(start_us=1000, end_us=2000, floor_us=400, rows=1, limits_id=0)
    assert warm_up_from(window, life_us=100) == 900
    assert warm_up_from(window, life_us=5000) == 400


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(2, 9), st.booleans(), st.integers(1, 9), st.data())
def test_windows_hold_every_request_once(
    times: list[int], rows: int, changing: bool, batch: int, data: st.DataObject
) -> None:
    times = sorted(times)
    kinds = data.draw(st.lists(st.integers(0, 2), min_size=len(times), max_size=len(times))) if changing else None
    found = windows(times, rows, kinds, batch)
    for window in found:
        assert window.rows == sum(window.start_us <= time < window.end_us for time in times)
        assert window.rows <= rows or len({time for time in times if window.start_us <= time < window.end_us}) == 1
    assert sum(window.rows for window in found) == len(times)
    assert all(one.end_us == other.start_us for one, other in pairwise(found))
