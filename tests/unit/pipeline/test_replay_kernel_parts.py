"""What the kernel stands on: buckets that no rounding moves, traces that are checked, a cache that may be missing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest

from pipeline.core.buckets import BUCKETS, count_waits, quantile
from pipeline.replay.compiled import F, compiled_and_kept
from tests.support.pipeline.traces import Shape, random_trace


def test_a_wait_is_counted_between_its_edges() -> None:
    for us, bucket in ((0, -1), (1, 0), (2, 8), (3, 12), (1000, 79), (1_000_000, 159)):
        counts = count_waits(np.array([us], np.int64))
        assert counts.sum() == 1
        assert counts.argmax() - 1 == bucket


def test_a_quantile_is_within_nine_percent() -> None:
    waits = np.random.default_rng(3).integers(50, 10**7, 5001).astype(np.int64)
    for share in (0.5, 0.95, 0.99):
        exact = np.sort(waits)[int(np.ceil(share * len(waits))) - 1]
        assert abs(quantile(count_waits(waits), share) / exact - 1) < 0.09
    assert quantile(count_waits(np.zeros(4, np.int64)), 0.99) == 0
    assert quantile(np.zeros(BUCKETS, np.int64), 0.5) == 0


def test_what_is_no_trace_is_refused() -> None:
    trace = random_trace(1, Shape(requests=5))
    with pytest.raises(ValueError, match="arrival_us: expected the order of arrival"):
        replace(trace, arrival_us=trace.arrival_us[::-1].copy()).check()
    with pytest.raises(ValueError, match="write_us: expected at least 0, got -1"):
        replace(trace, write_us=np.full(5, -1, np.int64)).check()
    with pytest.raises(ValueError, match="direct_us: expected at most the write_us of the request, 3, got 4"):
        replace(trace, write_us=np.full(5, 3), direct_us=np.array([0, 3, 4, 5, 0])).check()
    with pytest.raises(ValueError, match=r"hold_us: expected shape \(5,\), got \(4,\)"):
        replace(trace, hold_us=trace.hold_us[1:]).check()


def test_without_a_place_for_a_cache_the_kernel_is_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_a_cache(**options: Any) -> Callable[[F], F]:
        if "cache" in options:
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr(numba, "njit", without_a_cache)
    assert compiled_and_kept(lambda: 3)() == 3
