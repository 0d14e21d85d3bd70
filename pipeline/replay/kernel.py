"""The kernel, which replays under other limits: the rules of the limiter and of a topic list's path, compiled.

`replay` tells what became of each request, `replay_many` counts for many limits without an output for each request.
Both let other threads run meanwhile. Memory is that of the trace (about 120 bytes a request) and of the requests that
are there at the same time. The tests hold it equal to the limiter itself, request by request, to the microsecond.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from pipeline.core.buckets import BUCKETS, EDGES
from pipeline.core.model import WAITS, Aggregates, Int8s, Limits, Outcome, Result, Trace
from pipeline.replay import layout as L
from pipeline.replay.compiled import SOURCES_HASH, Ints, compiled, compiled_and_kept, inlined
from pipeline.replay.kernel_chains import soon, take_event
from pipeline.replay.kernel_groups import answer_begins, clean_up, expire, run_group
from pipeline.replay.kernel_lines import serve_rest
from pipeline.replay.kernel_members import (
    arrive,
    free_group,
    give_up_part,
    leave_early,
    list_written,
    run_request,
    time_out,
)
from pipeline.replay.prepare import Prepared

FOREVER: Final = (1 << 63) - 1
ALL_DONE, MORE_SLOTS = 0, 1
FIRST_SLOTS: Final = 1024
ANSWERED: Final = L.number(Outcome.OK)
OF_TOTAL: Final = WAITS.index("total")


def replay(trace: Trace | Prepared, limits: Limits, load: int = 1) -> Result:
    """Replay a trace with arrivals `load` times as fast; raises ValueError for what is no trace."""
    prepared = Prepared.of(trace)
    m, outcomes, (heap, update, direct, ends), _, _ = _run(prepared, limits, load, len(prepared.trace))
    return Result(outcomes, heap, update, direct, ends, *_sums(m))


def replay_many(trace: Trace | Prepared, limits: Sequence[Limits], load: int = 1, warm_up: int = 0) -> list[Aggregates]:
    """Replay a trace under each of many limits and count all but its first `warm_up` requests; raises ValueError."""
    prepared = Prepared.of(trace)
    return [_counted(prepared, each, load, warm_up) for each in limits]


def _counted(prepared: Prepared, limits: Limits, load: int, warm_up: int) -> Aggregates:
    m, _, _, counts, lengths = _run(prepared, limits, load, 0, warm_up)
    return Aggregates(counts, lengths, *_sums(m), int(m[L.LAST_END]))


def _sums(m: Ints) -> tuple[int, int, int]:
    return int(m[L.HEAP + L.PEAK]), int(m[L.DIRECT + L.PEAK]), int(m[L.QUESTIONS_ASKED])


def _run(
    prepared: Prepared, limits: Limits, load: int, requests: int, warm_up: int = 0
) -> tuple[Ints, Int8s, Ints, Ints, Ints]:
    """Run to the end, with as much memory as it turns out to need.

    Gives the books, the outcome of each request and its waits and end, or (for no `requests`) only counts of outcomes
    and of waits by length.
    """
    m = prepared.books(limits, load, FIRST_SLOTS)
    m[L.COUNTED_FROM] = warm_up
    c = np.zeros(4 * FIRST_SLOTS, np.int64)
    outcomes, waits = np.zeros(requests, np.int8), np.zeros((4, requests), np.int64)
    counts, lengths = np.zeros(len(Outcome), np.int64), np.zeros((len(WAITS), BUCKETS), np.int64)
    while _until_short(m, c, prepared.needs, outcomes, waits, counts, lengths) == MORE_SLOTS:
        slots = int(m[L.END] - m[L.SLOTS_BEGIN]) // L.SLOT_WORDS
        m = np.concatenate([m, np.zeros(slots * L.SLOT_WORDS, np.int64)])
        m[L.END] = len(m)
        events = 2 * 2 * slots + 2 * int(m[L.LEAVINGS])
        c = np.concatenate([c, np.zeros(max(0, 2 * events - len(c)), np.int64)])
    return m, outcomes, waits, counts, lengths


# --- compiled -------------------------------------------------------------------------------------


@compiled
def _event(m: Ints, c: Ints) -> None:
    """Take the first event of the heap and carry it out."""
    order = take_event(m, c)
    row = order & L.ROW_MASK
    kind = (order >> L.KIND_SHIFT) & 3
    if order & L.LEAVING_BIT:
        m[L.LEAVINGS] -= 1
        index = (order ^ L.LEAVING_BIT) >> L.ORDER_SHIFT
        if m[row + L.INDEX] == index and m[row + L.STATE] != L.OVER:
            leave_early(m, row)
    else:
        m[row + L.PENDING] = 0
        if kind == L.LIST_WRITTEN:
            list_written(m, row)
        else:
            if kind == L.ANSWER_BEGINS:
                answer_begins(m, row)
            elif m[row + L.STATE] == L.G_HOLDS:
                soon(m, row)
            if m[row + L.STATE] == L.G_ABANDONED:
                free_group(m, row)


@inlined
def _drain(m: Ints, c: Ints) -> None:
    """Run all rows that are to run, in order, before time goes on."""
    while m[L.READY] != 0:
        row = m[L.READY]
        m[L.READY] = m[row + L.READY_NEXT]
        if m[L.READY] == 0:
            m[L.READY_LAST] = 0
        state = m[row + L.STATE]
        if state == L.SERVES_REST:
            serve_rest(m, row)
        elif state < L.G_BEGINS:
            run_request(m, c, row)
        elif state == L.G_STOPS:
            clean_up(m, row)
            if m[row + L.PENDING] == 0:
                free_group(m, row)
        else:
            run_group(m, c, row)


@compiled
def _bucket(us: int) -> int:
    """Find the position of a wait among the edges."""
    if us <= 0:
        return 0
    at = min(1 + int(8.0 * np.log2(float(us))), BUCKETS - 1)
    while at + 1 < BUCKETS and EDGES[at + 1] <= us:
        at += 1
    while EDGES[at] > us:
        at -= 1
    return at


@inlined
def _tell_ends(m: Ints, outcomes: Ints, waits: Ints, counts: Ints, lengths: Ints) -> None:
    """Write down how requests ended, and give up their slots."""
    while m[L.ENDED] != 0:
        r = m[L.ENDED]
        m[L.ENDED] = m[r + L.TELL_NEXT]
        ended = m[r + L.ENDED_AT]
        m[L.LAST_END] = max(m[L.LAST_END], ended)
        index, outcome = m[r + L.INDEX], m[r + L.RESULT]
        if len(outcomes) > 0:
            outcomes[index] = outcome
            for wait in range(3):
                waits[wait, index] = m[r + L.HEAP_WAIT + wait]
            waits[3, index] = ended
        elif index >= m[L.COUNTED_FROM]:
            counts[outcome] += 1
            for wait in range(3):
                lengths[wait, _bucket(m[r + L.HEAP_WAIT + wait])] += 1
            if outcome == ANSWERED:
                lengths[OF_TOTAL, _bucket(ended - m[r + L.ARRIVAL] - m[r + L.WORK_TIME])] += 1
        if m[r + L.PENDING] == 0:
            give_up_part(m, r)


@inlined
def _next(m: Ints, c: Ints, arrival: int) -> tuple[int, int]:
    """Return when something happens next, and what: the phases in turn, the earliest first."""
    when, phase = arrival, 5
    is_leaving = False
    if m[L.EVENTS] > 0:
        is_leaving = (c[1] & L.LEAVING_BIT) != 0
        if is_leaving and c[0] <= when:
            when, phase = c[0], 4
    r = m[L.CLOCKS]
    if r != 0 and m[r + L.DEADLINE] <= when:
        when, phase = m[r + L.DEADLINE], 3
    g = m[L.DIRECT_DEADLINES]
    if g != 0 and m[g + L.WAITS_LATE] <= when:
        when, phase = m[g + L.WAITS_LATE], 2
    g = m[L.MEMORY_DEADLINES]
    if g != 0 and m[g + L.WAITS_LATE] <= when:
        when, phase = m[g + L.WAITS_LATE], 1
    if m[L.EVENTS] > 0 and not is_leaving and c[0] <= when:
        when, phase = c[0], 0
    return when, phase


@inlined
def _short(m: Ints, c: Ints) -> bool:
    """Return whether one more request might not find a slot, or its events no place."""
    if m[L.FREE] == 0 and m[L.NEW] + L.SLOT_WORDS > m[L.END]:
        return True
    slots = (m[L.NEW] - m[L.SLOTS_BEGIN]) // L.SLOT_WORDS + 1
    return bool(2 * (2 * slots + m[L.LEAVINGS] + 1) > len(c))


def _kept(sources: int) -> Callable[..., int]:
    """Make the function that runs it all; what is kept of it on disk is found by the value it closes over."""

    @compiled_and_kept
    def until_short(m: Ints, c: Ints, needs: Ints, outcomes: Ints, waits: Ints, counts: Ints, lengths: Ints) -> int:
        """Run everything, or as much as there is memory for."""
        m[L.SOURCES] = sources
        requests = len(needs) // L.NEED_WORDS
        while True:
            arrival = FOREVER
            if m[L.ARRIVED] < requests:
                arrival = needs[m[L.ARRIVED] * L.NEED_WORDS] // m[L.LOAD]
            when, phase = _next(m, c, arrival)
            if when == FOREVER:
                return ALL_DONE
            if phase == 5 and _short(m, c):
                return MORE_SLOTS
            m[L.NOW] = when
            if phase == 5:
                arrive(m, c, needs)
            elif phase in (0, 4):
                _event(m, c)
            elif phase == 3:
                time_out(m, m[L.CLOCKS])
            else:
                expire(m, m[L.DIRECT_DEADLINES] if phase == 2 else m[L.MEMORY_DEADLINES])
            _drain(m, c)
            _tell_ends(m, outcomes, waits, counts, lengths)

    return until_short


_until_short: Final = _kept(SOURCES_HASH)
