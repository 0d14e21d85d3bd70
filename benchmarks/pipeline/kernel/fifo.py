"""The least that a replay can be: two plain lines, first come, first served, with timeouts and bounds of their queues.

No groups, lanes, growth, shares or brokers: what `pipeline.replay.kernel` costs more is the price of the proxy's rules.
A request takes heap memory for its list, has it for the time of the question, takes direct memory, gives the heap
memory back, and is written.
"""

from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.core.model import Limits, Trace

__all__ = ["replay"]

Ints = NDArray[np.int64]
FOREVER: Final = (1 << 62) - 1
NOW, EVENTS, FIRST, LAST, HELD, LIMIT, TIMEOUT, MOST = range(8)  # the last six twice: of heap, and of direct
OF_DIRECT: Final = 6
OK, TIMED_OUT, FULL = 0, 1, 2


def replay(trace: Trace, limits: Limits, load: int = 1) -> Ints:
    """Return how many requests ended well, in a timeout, and at a full queue."""
    n = len(trace)
    s = np.zeros(16, np.int64)
    s[LIMIT], s[TIMEOUT], s[MOST] = limits.heap_bytes, limits.heap_timeout_us, limits.heap_queue
    s[LIMIT + OF_DIRECT], s[TIMEOUT + OF_DIRECT] = limits.direct_bytes, limits.direct_timeout_us
    s[MOST + OF_DIRECT] = limits.direct_queue
    queues, since, events = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64), np.zeros((n + 1, 2), np.int64)
    size = np.stack([trace.heap_bytes, trace.direct_bytes])
    time = np.stack([trace.upstream_us + trace.hold_us, trace.write_us])
    outcomes = np.zeros(3, np.int64)
    _run(s, trace.arrival_us // load, size, time, queues, since, events, outcomes)
    return outcomes


@njit(nogil=True)
def _push(s: Ints, events: Ints, when: int, what: int) -> None:
    at = s[EVENTS]
    s[EVENTS] = at + 1
    while at > 0 and events[(at - 1) >> 1, 0] > when:
        events[at] = events[(at - 1) >> 1]
        at = (at - 1) >> 1
    events[at, 0], events[at, 1] = when, what


@njit(nogil=True)
def _pop(s: Ints, events: Ints) -> int:
    what = events[0, 1]
    count = s[EVENTS] - 1
    s[EVENTS] = count
    when, moved = events[count, 0], events[count, 1]
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and events[below + 1, 0] < events[below, 0]:
            below += 1
        if events[below, 0] >= when:
            break
        events[at] = events[below]
        at = below
    events[at, 0], events[at, 1] = when, moved
    return int(what)


@njit(nogil=True)
def _serve(s: Ints, of: int, size: Ints, time: Ints, queues: Ints, events: Ints) -> None:
    """Admit the requests that wait, in order, as long as the first one fits."""
    base = of * OF_DIRECT
    while s[FIRST + base] < s[LAST + base]:
        r = queues[of, s[FIRST + base]]
        need = min(size[of, r], s[LIMIT + base])
        if s[HELD + base] + need > s[LIMIT + base]:
            return
        s[FIRST + base] += 1
        s[HELD + base] += need
        _push(s, events, s[NOW] + time[of, r], 2 * r + of)
        if of == 1:
            s[HELD] -= min(size[0, r], s[LIMIT])


@njit(nogil=True)
def _enter(s: Ints, of: int, r: int, size: Ints, queues: Ints, since: Ints, outcomes: Ints) -> None:
    base = of * OF_DIRECT
    if s[LAST + base] - s[FIRST + base] >= s[MOST + base] > 0:
        outcomes[FULL] += 1
        if of == 1:
            s[HELD] -= min(size[0, r], s[LIMIT])
        return
    queues[of, s[LAST + base]] = r
    since[of, r] = s[NOW]
    s[LAST + base] += 1


@njit(nogil=True)
def _deadline(s: Ints, of: int, queues: Ints, since: Ints) -> int:
    base = of * OF_DIRECT
    if s[FIRST + base] == s[LAST + base]:
        return FOREVER
    return int(since[of, queues[of, s[FIRST + base]]] + s[TIMEOUT + base])


@njit(nogil=True)
def _expire(s: Ints, of: int, size: Ints, queues: Ints, outcomes: Ints) -> None:
    base = of * OF_DIRECT
    r = queues[of, s[FIRST + base]]
    s[FIRST + base] += 1
    outcomes[TIMED_OUT] += 1
    if of == 1:
        s[HELD] -= min(size[0, r], s[LIMIT])


@njit(nogil=True)
def _run(
    s: Ints, arrival: Ints, size: Ints, time: Ints, queues: Ints, since: Ints, events: Ints, outcomes: Ints
) -> None:
    n, following = len(arrival), 0
    while True:
        when = arrival[following] if following < n else FOREVER
        late_heap, late_direct = _deadline(s, 0, queues, since), _deadline(s, 1, queues, since)
        done = events[0, 0] if s[EVENTS] > 0 else FOREVER
        s[NOW] = min(min(when, done), min(late_heap, late_direct))
        if s[NOW] == FOREVER:
            return
        if done == s[NOW]:
            what = _pop(s, events)
            r = what >> 1
            if what & 1:
                s[HELD + OF_DIRECT] -= min(size[1, r], s[LIMIT + OF_DIRECT])
                outcomes[OK] += 1
            else:
                _enter(s, 1, r, size, queues, since, outcomes)
        elif late_heap == s[NOW]:
            _expire(s, 0, size, queues, outcomes)
        elif late_direct == s[NOW]:
            _expire(s, 1, size, queues, outcomes)
        else:
            _enter(s, 0, following, size, queues, since, outcomes)
            following += 1
        _serve(s, 1, size, time, queues, events)
        _serve(s, 0, size, time, queues, events)
