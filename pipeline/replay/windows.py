"""Where a long trace is cut, so that a task holds a bounded part of it; pure, fed batch by batch.

Rule: a window has at most `rows` requests, and is cut in its last quarter where nothing came for the longest time. A
window is replayed after a warm-up: the requests that came before it and could still be there. If nothing came for as
long as a request can live, those are none, and the windows are exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pipeline.core.errors import PipelineError

# A task holds a window and a warm-up that is no larger, at about 400 bytes a request: 0.8 GB at most.
WINDOW_ROWS: Final = 1_000_000
LEAST_ROWS: Final = 10_000
MOST_CHANGES: Final = 1000

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Window:
    """Requests from `start_us` to before `end_us`; a warm-up may reach back to `floor_us`, the window before."""

    start_us: int
    end_us: int
    floor_us: int
    rows: int
    limits_id: int


def cut(batches: Iterable[tuple[Int64s, Int64s]], rows: int, *, by_limits: bool) -> list[Window]:
    """Cut the arrivals of one proxy, given as batches of (arrival_us, limits_id) in order, into windows.

    With `by_limits` no window goes over a change of limits; raises PipelineError if they change all the time. Requests
    of one microsecond stay together, even if they are more than `rows`.
    """
    windows: list[Window] = []
    changes = 0
    times, limits = np.empty(0, np.int64), np.empty(0, np.int64)
    for more_times, more_limits in batches:
        times, limits = np.concatenate([times, more_times]), np.concatenate([limits, more_limits])
        while (size := _next(times, limits, rows, by_limits=by_limits)) is not None:
            _add(windows, times[:size], int(limits[0]), int(times[size]))
            changes += int(limits[size] != limits[0])
            if by_limits and changes > MOST_CHANGES:
                # A long trace has as many windows as it needs; so many changes are two proxies of one name.
                raise PipelineError(
                    f"got more than {MOST_CHANGES} changes of limits of one proxy, expected fewer: give each proxy an"
                    " eventLogProxyId of its own"
                )
            times, limits = times[size:], limits[size:]
    if len(times):
        _add(windows, times, int(limits[0]), int(times[-1]) + 1)
    return windows


def warm_up_from(window: Window, life_us: int) -> int:
    """Return the earliest arrival that may matter at the beginning of a window: a `life_us` before."""
    return max(window.floor_us, window.start_us - life_us)


def window_rows(loads: Iterable[int]) -> int:
    """Return the requests of a window of which a task holds so many times as many."""
    return max(LEAST_ROWS, WINDOW_ROWS // max(loads))


def _add(windows: list[Window], times: Int64s, limits_id: int, end_us: int) -> None:
    start_us = int(times[0])
    floor_us = windows[-1].start_us if windows else start_us
    windows.append(Window(start_us, end_us, floor_us, len(times), limits_id))


def _next(times: Int64s, limits: Int64s, rows: int, *, by_limits: bool) -> int | None:
    """Find where the next window ends; None if more arrivals must be seen first."""
    if by_limits and len(changes := np.flatnonzero(limits[1:] != limits[0])):
        size = int(changes[0]) + 1
        # The cut is by time: what came in the same microsecond goes along.
        size = int(np.searchsorted(times, times[size], side="left")) or int(np.searchsorted(times, times[0], "right"))
        if 0 < size <= rows and size < len(times):
            return size
    if len(times) <= rows:
        return None
    return _idlest(times, rows)


def _idlest(times: Int64s, rows: int) -> int | None:
    gaps = times[1 : rows + 1] - times[:rows]
    first = rows - 1 - rows // 4
    best = first + int(np.argmax(gaps[first:]))
    if gaps[best] > 0:
        return best + 1
    if len(before := np.flatnonzero(gaps)):
        return int(before[-1]) + 1
    after = int(np.searchsorted(times, times[rows], side="right"))
    return after if after < len(times) else None
