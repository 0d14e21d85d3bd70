"""Sums over parts of the work: each figure is put together as its meaning wants it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.model import Limits
from pipeline.replay.job import _short_warm_ups
from pipeline.replay.parts import Survey, Way
from pipeline.replay.traces import Prepared, ProxyTrace
from pipeline.replay.windows import Window
from tests.support.pipeline.aggregates import NOTHING, added


def test_counts_add_up_and_peaks_are_the_highest() -> None:
    one = replace(
        NOTHING, outcomes=NOTHING.outcomes + 1, waits=NOTHING.waits + 2, peak_heap_bytes=7, peak_direct_bytes=1,
        questions=5, last_end_us=90,
    )  # fmt: skip
    other = replace(one, peak_heap_bytes=3, peak_direct_bytes=4, questions=6, last_end_us=80)
    both = added(one, other)
    assert np.array_equal(both.outcomes, 2 * one.outcomes)
    assert np.array_equal(both.waits, 2 * one.waits)
    assert (both.peak_heap_bytes, both.peak_direct_bytes) == (7, 4)
    assert (both.questions, both.last_end_us) == (11, 90)


def short_warm_ups(windows: Sequence[Window]) -> int:
    proxy = ProxyTrace("p", 10, 0, 400, longest_work_us=20, largest_heap_bytes=1, largest_direct_bytes=1, imputed=0)
    limits = Limits(request_timeout_us=80)
    prepared = Prepared("nowhere", (proxy,), {0: limits})
    return _short_warm_ups(prepared, Survey(Way.DIRECT, {"p": tuple(windows)}), [limits])


def test_warm_ups_are_short_where_older_requests_than_those_of_the_window_before_could_be_there() -> None:
    # A request lives 100 us at most. The second window reaches back to the beginning of the trace: nothing is older.
    first, second = Window(0, 60, 0, 5, 0), Window(60, 130, 0, 5, 0)
    third, fourth = Window(130, 300, 60, 5, 0), Window(300, 400, 130, 5, 0)
    assert short_warm_ups([first, second]) == 0
    assert short_warm_ups([first, second, third, fourth]) == 1
