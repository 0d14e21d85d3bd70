"""The course of requests: groups of equal questions, the instants at which each stage of a group ends, who got what.

Times are microseconds since the chunk's slice began. Rule: a member's parts are what its own life, from being looked at
to its end, has in common with the stages of its group; so the parts of a request always add up to its total.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.pipeline.generate.arrivals import Arrivals
from benchmarks.pipeline.generate.population import Population
from benchmarks.pipeline.generate.settings import GenerateSettings
from pipeline.core.model import NEVER, Limits, Outcome, Trace

__all__ = ["ENDS", "Groups", "Members", "follow"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIRST_ESTIMATE_BYTES: Final = 7 * 1024
# Index of the stage at whose end a group with this outcome is over; all others go to the last.
GROUP, HEAP, BROKER, UPSTREAM, HEAP_UPDATE, READ, READER, DIRECT, WRITE = range(9)
ENDS: Final = {
    Outcome.TIMEOUT_HEAP: HEAP,
    Outcome.QUEUE_FULL_HEAP: HEAP,
    Outcome.FAILED: UPSTREAM,  # the broker answered with an error
    Outcome.OVERSIZE: UPSTREAM,
    Outcome.TIMEOUT_HEAP_UPDATE: HEAP_UPDATE,
    Outcome.TIMEOUT_DIRECT: DIRECT,
    Outcome.QUEUE_FULL_DIRECT: READER,
    Outcome.TIMEOUT_OTHER: BROKER,
}


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups, an entry each: its question, sizes, the instants at which its stages end, and its outcome."""

    question: Ints
    first: Ints  # index of its first member
    estimate_bytes: Ints
    heap_bytes: Ints
    direct_bytes: Ints
    unchanged: Bools
    pressure: NDArray[np.float64]
    outcome: NDArray[np.int8]
    ends: Ints  # stages x groups; the last row is not known here: members write at their own pace


@dataclass(frozen=True, eq=False)
class Members:
    """Requests, an entry each, those of a group together, in the order of their arrival."""

    group: Ints
    client: Ints
    at_us: Ints
    looked_us: Ints
    end_us: Ints
    left: Bools  # the client went before it had its answer


def follow(
    settings: GenerateSettings, people: Population, asked: Arrivals, rng: np.random.Generator
) -> tuple[Groups, Members]:
    """Make groups of the arrivals and follow each to its end."""
    question = people.question_of[asked.client]
    order = np.lexsort((asked.at_us, question))
    question, at, client = question[order], asked.at_us[order], asked.client[order]
    width = people.upstream_us_of[people.namespace_of[question]]
    turn = at // width if settings.limits.coalescing else np.arange(len(at), dtype=np.int64)
    starts = np.ones(len(at), dtype=np.bool_)
    starts[1:] = (question[1:] != question[:-1]) | (turn[1:] != turn[:-1])
    first = np.flatnonzero(starts)
    group = np.cumsum(starts) - 1
    looked = at + np.where(rng.random(len(at)) < 0.01, rng.integers(50, 5_000, len(at)), 0)
    begun = looked[first]
    behind = np.zeros(len(first), dtype=np.bool_)
    behind[1:] = (question[first][1:] == question[first][:-1]) & (turn[first][1:] == turn[first][:-1] + 1)
    if settings.limits.coalescing:
        begun = begun + np.where(behind, rng.random(len(first)) * width[first] / 2, 0).astype(np.int64)
    groups = _sizes(people, question[first], first, asked.pressure[order][first], rng)
    last_looked = np.maximum.reduceat(looked, first)
    groups = _instants(settings, people, groups, begun, last_looked, rng)
    return groups, _members(settings, groups, group, client, at, looked, rng)


def _sizes(
    people: Population, question: Ints, first: Ints, pressure: NDArray[np.float64], rng: np.random.Generator
) -> Groups:
    count = len(question)
    names = people.topics_of[people.namespace_of[question]]
    name_bytes = names * people.name_length_of[people.namespace_of[question]]
    unchanged = rng.random(count) < 0.1
    direct = np.where(unchanged, 64, name_bytes + 3 * names + 64)
    whole = 2 * name_bytes + 100 * names + 512
    # The size known before is that of whole lists.
    heap = np.where(unchanged, 512, whole)
    estimate = np.where(rng.random(count) < 0.05, FIRST_ESTIMATE_BYTES, whole)
    nothing = np.empty((0, count), dtype=np.int64)
    outcome = np.full(count, Outcome.OK, dtype=np.int8)
    return Groups(question, first, estimate, heap, direct, unchanged, pressure, outcome, nothing)


def _instants(
    settings: GenerateSettings,
    people: Population,
    groups: Groups,
    begun: Ints,
    last_looked: Ints,
    rng: np.random.Generator,
) -> Groups:
    count = len(begun)
    upstream = (people.upstream_us_of[people.namespace_of[groups.question]] * rng.lognormal(0, 0.3, count)).astype(
        np.int64
    )
    read = groups.direct_bytes // 200 + rng.integers(20, 200, count)
    reader = np.where(rng.random(count) < 0.1, rng.exponential(3_000, count), 0).astype(np.int64)
    if settings.simulate:
        # No rule makes this wait where each list has a client of its own, so that a replay would not find it again.
        reader = np.zeros_like(reader)
    broker = rng.integers(10, 300, count)
    memory = _plausible if not settings.simulate else _simulated
    outcome, heap, update, direct, broker = memory(
        settings.limits, people, groups, begun, upstream, read + reader, broker, rng
    )
    ends = np.empty((WRITE, count), dtype=np.int64)
    ends[GROUP] = begun
    ends[HEAP] = begun + heap
    ends[BROKER] = np.maximum(ends[HEAP], last_looked) + broker
    for stage, lasts in ((UPSTREAM, upstream), (HEAP_UPDATE, update), (READ, read), (READER, reader), (DIRECT, direct)):
        ends[stage] = ends[stage - 1] + lasts
    return replace(groups, outcome=outcome, ends=ends)


def _plausible(
    limits: Limits,
    people: Population,
    groups: Groups,
    begun: Ints,
    upstream: Ints,
    hold: Ints,
    broker: Ints,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int8], Ints, Ints, Ints, Ints]:
    """Draw waits that look like those of a limiter: only in storms, and longer in heavy ones."""
    count = len(begun)
    waits = (rng.random(count) < 0.6) & (groups.pressure > 0)
    heap = np.where(waits, rng.exponential(400_000, count) * groups.pressure, 0).astype(np.int64)
    update = np.where(rng.random(count) < 0.05, rng.exponential(50_000, count) * groups.pressure, 0).astype(np.int64)
    direct = np.where(rng.random(count) < 0.1, rng.exponential(80_000, count) * groups.pressure, 0).astype(np.int64)
    outcome = np.full(count, Outcome.OK, dtype=np.int8)
    chance = rng.random(count)
    outcome[chance < 0.002] = Outcome.FAILED
    outcome[(chance > 0.9998)] = Outcome.OVERSIZE
    for waited, longest, late in (
        (direct, limits.direct_timeout_us, Outcome.TIMEOUT_DIRECT),
        (update, limits.heap_timeout_us, Outcome.TIMEOUT_HEAP_UPDATE),
        (heap, limits.heap_timeout_us, Outcome.TIMEOUT_HEAP),
    ):
        outcome[waited >= longest] = late
        np.minimum(waited, longest, out=waited)
    full = (groups.pressure > 1) & (chance > 0.95) & (chance < 0.99)
    outcome[full], heap[full] = Outcome.QUEUE_FULL_HEAP, 0
    return outcome, heap, update, direct, broker


def _simulated(
    limits: Limits,
    people: Population,
    groups: Groups,
    begun: Ints,
    upstream: Ints,
    hold: Ints,
    broker: Ints,
    rng: np.random.Generator,
) -> tuple[NDArray[np.int8], Ints, Ints, Ints, Ints]:
    """Return who waits by the rules of the limiter: groups are replayed, each as one request of a client of its own."""
    from pipeline.replay.kernel import replay

    order = np.argsort(begun, kind="stable")
    small = np.arange(len(begun), dtype=np.int32)
    trace = Trace(
        arrival_us=begun[order],
        question=small,
        share=np.zeros_like(small),
        client=small,
        broker=people.broker_of[people.namespace_of[groups.question]][order].astype(np.int32),
        estimate_bytes=groups.estimate_bytes[order],
        heap_bytes=groups.heap_bytes[order],
        direct_bytes=groups.direct_bytes[order],
        upstream_us=upstream[order],
        hold_us=hold[order],
        write_us=_write_us(groups)[order],
        direct_us=_write_us(groups)[order],
        cancel_us=np.full(len(begun), NEVER, dtype=np.int64),
    )
    result = replay(trace, replace(limits, coalescing=False, fairness="fifo"))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    waits = (result.heap_wait_us[back], result.heap_update_wait_us[back], result.direct_wait_us[back])
    # The part of a life that is left when all else is taken off is the wait for a question slot.
    slot = result.end_us[back] - begun - sum(waits) - upstream - hold - _write_us(groups)
    outcome = result.outcome[back]
    return outcome, *waits, np.where(outcome == Outcome.OK, np.maximum(slot, 0), 0)


def _write_us(groups: Groups) -> Ints:
    return np.asarray(groups.direct_bytes // 400 + 30, dtype=np.int64)


def _members(
    settings: GenerateSettings,
    groups: Groups,
    group: Ints,
    client: Ints,
    at: Ints,
    looked: Ints,
    rng: np.random.Generator,
) -> Members:
    count = len(at)
    over = groups.ends[DIRECT].copy()
    for outcome, stage in ENDS.items():
        those = groups.outcome == outcome
        over[those] = groups.ends[stage][those]
    well = groups.outcome[group] == Outcome.OK
    # A replay knows neither slow clients nor those that leave.
    slow = 0.0 if settings.simulate else 1.0
    write = (_write_us(groups)[group] * (1 + slow * rng.random(count))).astype(np.int64)
    end = np.maximum(over[group] + np.where(well, write, 0), looked)
    left = rng.random(count) < 0.004 * slow
    end = np.where(left, at + ((end - at) * rng.random(count)).astype(np.int64), end)
    return Members(group, client, at, np.minimum(looked, end), end, left)
