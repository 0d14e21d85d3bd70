"""The replay's kernel and the proxy's own limiter do the same to each request: its outcome, and how long it waits.

The kernel is checked against the limiter's own semaphores, groups and lanes, on asyncio's loop in virtual time: under
each rule, at higher loads, by each fairness key, in a fleet, on whatever trace. Waits are compared by their buckets.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from limiter import semaphore
from limiter.semaphore import MOST_AT_ONCE
from pipeline.core.buckets import count_waits
from pipeline.core.model import NEVER, Fairness, Limits, Outcome, Result, Trace
from pipeline.replay import kernel, prepare
from pipeline.replay.job import simulate
from pipeline.replay.slices import Slice
from proxy.auth.fairness_key import FairnessKeys
from tests.support.pipeline.real_limiter import replay_by_the_real_limiter
from tests.support.pipeline.traces import RULES, Shape, random_trace, times

# The first to run compiles the kernel; on a slow loaded machine that takes minutes.
pytestmark = pytest.mark.timeout(600)

SHAPES = [Shape(), Shape(span_us=300), Shape(questions=60, span_us=20_000), Shape(longest_us=400, brokers=1, keys=9)]


def waits_of(result: Result) -> list[list[int]]:
    """Count the waits for memory by their lengths."""
    waits = (result.heap_wait_us, result.heap_update_wait_us, result.direct_wait_us)
    return [count_waits(each).tolist() for each in waits]


def agree(trace: Trace, limits: Limits, load: int = 1) -> Result:
    """Replay by the kernel and by the limiter, and return the limiter's result if both are the same."""
    got, expected = kernel.replay(trace, limits, load), replay_by_the_real_limiter(trace, limits, load)
    assert got.outcome.tolist() == expected.outcome.tolist()
    assert waits_of(got) == waits_of(expected)
    for name in ("peak_heap_bytes", "peak_direct_bytes", "questions"):
        assert getattr(got, name) == getattr(expected, name), name
    return expected


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 10_000),
    st.sampled_from(SHAPES),
    st.sampled_from([1, 7, 50]),
    # Where sizes are a thousand times as large, a quantum of the turns is many bytes.
    st.sampled_from([1, 1000]),
    st.sampled_from([1, 2, MOST_AT_ONCE]),
)
def test_kernel_does_what_the_limiter_does(
    rule: str, seed: int, shape: Shape, load: int, scale: int, at_once: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(semaphore, "MOST_AT_ONCE", at_once)
        patch.setattr(prepare, "GRANTS_AT_ONCE", at_once)
        agree(*times(scale, random_trace(seed, shape), RULES[rule]), load)


def test_kernel_goes_on_with_more_memory() -> None:
    trace = random_trace(3, Shape(requests=6000, span_us=100, clients=4000, questions=5000, leaving=0.5))
    agree(trace, replace(RULES["fair"], heap_queue=0, heap_timeout_us=10**6, request_timeout_us=10**6))


@pytest.mark.parametrize("rule", RULES)
def test_every_request_is_counted_once(rule: str) -> None:
    prepared = prepare.Prepared.of(random_trace(5, Shape()))
    trace, warm_up = prepared.trace, 40
    many = [RULES[rule], RULES["fifo"]]
    for counted, limits in zip(kernel.replay_many(prepared, many, 2, warm_up), many, strict=True):
        result = replay_by_the_real_limiter(trace, limits, 2, warm_up)
        kept = slice(warm_up, None)
        answered = result.outcome[kept] == Outcome.OK
        work = trace.upstream_us + trace.hold_us + trace.write_us
        total = np.maximum(0, result.end_us - trace.arrival_us // 2 - work)[kept][answered]
        waits = [each[kept] for each in (result.heap_wait_us, result.heap_update_wait_us, result.direct_wait_us)]
        assert counted.outcomes.tolist() == np.bincount(result.outcome[kept], minlength=len(Outcome)).tolist()
        assert counted.waits.tolist() == [count_waits(lengths).tolist() for lengths in (*waits, total)]
        assert counted.questions == result.questions


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 10_000),
    st.sampled_from([*SHAPES, Shape(span_us=40_000), Shape(brokers=1, span_us=9_000)]),
    st.sampled_from(sorted(RULES)),
    st.lists(st.tuples(*(st.sampled_from([0, 40, 60, 90, 150, 300, 600, 1200, 2400]),) * 2), min_size=2, max_size=12),
    st.integers(0, 60),
)
def test_a_grid_comes_to_what_each_of_its_scenarios_does(
    seed: int, shape: Shape, rule: str, memory: list[tuple[int, int]], warm_up: int
) -> None:
    part = replace(recorded(seed, shape)[0], warm_up=warm_up)
    for fairness in dict.fromkeys(("fifo", RULES[rule].fairness)):
        usual = replace(RULES[rule], fairness=fairness)
        grid = [replace(usual, heap_bytes=heap, direct_bytes=direct) for heap, direct in dict.fromkeys(memory)]
        each = kernel.replay_many(part.trace(fairness), grid, warm_up=warm_up)
        for got, expected in zip(simulate(part, grid), each, strict=True):
            assert got.outcomes.tolist() == expected.outcomes.tolist()
            assert got.waits.tolist() == expected.waits.tolist()
            for name in ("peak_heap_bytes", "peak_direct_bytes", "questions", "last_end_us"):
                assert getattr(got, name) == getattr(expected, name), name


def test_a_list_that_is_too_large_for_one_scenario_of_a_grid_is_refused_in_that_alone() -> None:
    part, _ = recorded(1, Shape(requests=1, leaving=0))
    one = {"estimate_bytes": 5, "heap_bytes": 5, "direct_bytes": 50, "upstream_us": 10, "hold_us": 20, "cancel_us": 15}
    numbers = dict(part.numbers) | {name: np.array([value]) for name, value in one.items()}
    grid = [Limits(heap_bytes=2400, direct_bytes=direct) for direct in (2400, 40)]
    # Its client leaves while it is read, so that it never holds direct memory.
    outcomes = [Outcome(int(each.outcomes.argmax())) for each in simulate(replace(part, numbers=numbers), grid)]
    assert outcomes == [Outcome.CANCELLED, Outcome.OVERSIZE]


def recorded(seed: int, shape: Shape) -> tuple[Slice, list[tuple[SimpleNamespace, str]]]:
    """Make a slice of `replay_input`, and the client and the namespace behind each request."""
    trace = random_trace(seed, shape)
    namespace = trace.question % 5
    tenant, principal = namespace % 3, trace.client % 7
    named = {"question": trace.question, "client": trace.client, "broker": trace.broker, "principal": principal}
    names = {name: _hashes(name, codes) for name, codes in (named | {"tenant": tenant, "namespace": namespace}).items()}
    numbers = {name: getattr(trace, name) for name in trace.__slots__ if name not in (*named, "share")}
    zeros = np.zeros(len(trace), np.int64)
    askers = [
        (SimpleNamespace(principal=f"role-{role}", name=f"10.0.0.{client}:1"), f"t{owner}/n{number}")
        for role, client, owner, number in zip(principal, trace.client, tenant, namespace, strict=True)
    ]
    return Slice(numbers, names, zeros, zeros, zeros, 0), askers


def _hashes(
    name: str, codes: "np.ndarray[tuple[int], np.dtype[np.int32]]"
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Give names as the table has them: 64 bits at random, the same for equal names."""
    chance = np.random.default_rng(len(name))
    return chance.integers(-(1 << 62), 1 << 62, int(codes.max()) + 1)[codes]


@pytest.mark.parametrize("fairness", [each for each in get_args(Fairness) if each != "fifo"])
def test_each_key_of_fairness_is_the_proxys_own(fairness: Fairness) -> None:
    part, askers = recorded(3, Shape(requests=150, clients=15))
    keys = [FairnessKeys(fairness).key(client, namespace) for client, namespace in askers]
    assert part.trace(fairness).share.tolist() == pd.factorize(np.array(keys, dtype=object))[0].tolist()


def test_more_clients_are_as_many_with_questions_of_their_own_in_the_order_of_coming() -> None:
    whole, _ = recorded(7, Shape(requests=60, clients=12))
    thrice = whole.times(3)
    assert len(thrice) == 3 * len(whole)
    for name in ("client", "question"):
        assert len(set(thrice.names[name].tolist())) == 3 * len(set(whole.names[name].tolist()))
    assert (np.diff(thrice.trace("tenant").arrival_us) >= 0).all()


@pytest.mark.parametrize("fleet", [2, 3])
def test_each_proxy_of_a_fleet_does_what_the_limiter_does_with_its_clients(fleet: int) -> None:
    whole, _ = recorded(5, Shape(requests=240, clients=30))
    limits = replace(RULES["fair"], fairness="tenant")
    clients: list[set[int]] = []
    outcomes = np.zeros(len(Outcome), np.int64)
    for replica in range(fleet):
        mine = whole.of_replica(replica, fleet)
        clients.append(set(mine.names["client"].tolist()))
        expected = agree(mine.trace("tenant"), limits, 3)
        (counted,) = simulate(mine, [limits], 3)
        assert counted.outcomes.tolist() == np.bincount(expected.outcome, minlength=len(Outcome)).tolist()
        outcomes += counted.outcomes
    # A connection is on one proxy, every request on some, and no proxy is without any.
    assert sum(map(len, clients)) == len(set.union(*clients)) == len(set(whole.names["client"].tolist()))
    assert all(clients)
    assert outcomes.sum() == len(whole)


# --- whatever is asked ----------------------------------------------------------------------------

SMALL = st.integers(0, 12)


@st.composite
def small_traces(draw: st.DrawFn) -> Trace:
    n = draw(st.integers(1, 14))

    def numbers(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=n, max_size=n))

    def int64s(least: int, most: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array(numbers(least, most), np.int64)

    question = np.array(numbers(0, 3), np.int32)
    write_us = int64s(0, 6)
    return Trace(
        arrival_us=np.sort(int64s(0, 20)),
        question=question,
        share=np.array(numbers(0, 2), np.int32),
        client=np.array(numbers(0, 4), np.int32),
        broker=question % 2,
        estimate_bytes=int64s(0, 8),
        heap_bytes=int64s(0, 12),
        direct_bytes=int64s(0, 12),
        upstream_us=int64s(0, 6),
        hold_us=int64s(0, 3),
        write_us=write_us,
        direct_us=np.minimum(int64s(0, 6), write_us),
        cancel_us=int64s(NEVER, 9),
    )


small_limits = st.builds(
    Limits,
    heap_bytes=st.sampled_from([0, 5, 12, 20]),
    direct_bytes=st.sampled_from([0, 5, 12, 20]),
    heap_timeout_us=SMALL,
    direct_timeout_us=SMALL,
    heap_queue=st.integers(0, 4),
    direct_queue=st.integers(0, 3),
    request_timeout_us=st.integers(0, 30),
    max_outstanding_per_broker=st.integers(0, 3),
    coalescing=st.booleans(),
    fairness=st.sampled_from(["fifo", "tenant"]),
    key_cap_percent=st.sampled_from([100, 50, 20]),
    max_answer_bytes=st.sampled_from([None, 0, 8]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trace=small_traces(), limits=small_limits)
def test_both_agree_on_whatever_is_asked(trace: Trace, limits: Limits) -> None:
    agree(trace, limits)
