"""The replay's kernel and the proxy's own limiter do the same at higher loads, by each fairness key, in a fleet."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.core.model import Fairness, Limits, Outcome, Result, Trace
from pipeline.replay import kernel
from pipeline.replay.job import simulate
from pipeline.replay.slices import Slice
from proxy.auth.fairness_key import FairnessKeys
from tests.support.pipeline.real_limiter import replay_by_the_real_limiter
from tests.support.pipeline.traces import RULES, Shape, random_trace

# The first to run compiles the kernel; on a slow loaded machine that takes minutes.
pytestmark = pytest.mark.timeout(600)

FAIRNESS = get_args(Fairness)


def assert_same(got: Result, expected: Result) -> None:
    for field in fields(Result):
        mine, its = getattr(got, field.name), getattr(expected, field.name)
        assert np.array_equal(mine, its), f"{field.name}: got {mine}, expected {its}"


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


@pytest.mark.parametrize("load", [2, 7, 1000])
@pytest.mark.parametrize("rule", RULES)
def test_kernel_does_at_higher_loads_what_the_limiter_does(rule: str, load: int) -> None:
    trace = random_trace(11, Shape(requests=120, span_us=6_000))
    assert_same(kernel.replay(trace, RULES[rule], load), replay_by_the_real_limiter(trace, RULES[rule], load))


@pytest.mark.parametrize("fairness", FAIRNESS)
@pytest.mark.parametrize("cap", [100, 40])
def test_each_key_of_fairness_is_the_proxys_own_and_shares_as_the_limiter_does(fairness: Fairness, cap: int) -> None:
    part, askers = recorded(3, Shape(requests=150, clients=15))
    trace = part.trace(fairness)
    if fairness != "fifo":
        keys = [FairnessKeys(fairness).key(client, namespace) for client, namespace in askers]
        assert trace.share.tolist() == pd.factorize(np.array(keys, dtype=object))[0].tolist()
    limits = replace(RULES["fair"], fairness=fairness, key_cap_percent=cap)
    for load in (1, 5):
        assert_same(kernel.replay(trace, limits, load), replay_by_the_real_limiter(trace, limits, load))


@pytest.mark.parametrize("rule", ["fifo", "fair", "capped"])
def test_more_clients_do_what_the_limiter_does_with_as_many(rule: str) -> None:
    whole, _ = recorded(7, Shape(requests=60, clients=12))
    thrice = whole.times(3)
    assert len(thrice) == 3 * len(whole)
    assert len(set(thrice.names["client"].tolist())) == 3 * len(set(whole.names["client"].tolist()))
    assert len(set(thrice.names["question"].tolist())) == 3 * len(set(whole.names["question"].tolist()))
    limits = replace(RULES[rule], fairness="tenant" if RULES[rule].fairness != "fifo" else "fifo")
    trace = thrice.trace(limits.fairness)
    assert (np.diff(trace.arrival_us) >= 0).all()
    assert_same(kernel.replay(trace, limits), replay_by_the_real_limiter(trace, limits))


@pytest.mark.parametrize("fleet", [2, 3])
def test_each_proxy_of_a_fleet_does_what_the_limiter_does_with_its_clients(fleet: int) -> None:
    whole, _ = recorded(5, Shape(requests=240, clients=30))
    limits = replace(RULES["fair"], fairness="tenant")
    clients: list[set[int]] = []
    outcomes = np.zeros(len(Outcome), np.int64)
    for replica in range(fleet):
        mine = whole.of_replica(replica, fleet)
        clients.append(set(mine.names["client"].tolist()))
        expected = replay_by_the_real_limiter(mine.trace("tenant"), limits, 3)
        assert_same(kernel.replay(mine.trace("tenant"), limits, 3), expected)
        (counted,) = simulate(mine, [limits], 3)
        assert counted.outcomes.tolist() == np.bincount(expected.outcome, minlength=len(Outcome)).tolist()
        outcomes += counted.outcomes
    # A connection is on one proxy, every request on some, and no proxy is without any.
    assert sum(map(len, clients)) == len(set.union(*clients)) == len(set(whole.names["client"].tolist()))
    assert all(clients)
    assert outcomes.sum() == len(whole)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 10_000),
    st.integers(2, 50),
    st.sampled_from(FAIRNESS),
    st.sampled_from([100, 60, 30]),
    st.booleans(),
    st.sampled_from([0, 90, 200]),
)
def test_whatever_the_load_and_the_key_both_agree(
    seed: int, load: int, fairness: Fairness, cap: int, coalescing: bool, heap: int
) -> None:
    trace = one_trace(seed)
    limits = replace(
        RULES["fair"], fairness=fairness, key_cap_percent=cap, coalescing=coalescing, heap_bytes=heap, heap_queue=9
    )
    assert_same(kernel.replay(trace, limits, load), replay_by_the_real_limiter(trace, limits, load))


def one_trace(seed: int) -> Trace:
    return random_trace(seed, Shape(requests=40, span_us=3_000, clients=8, keys=3))


def test_a_load_without_limits_only_changes_when_requests_come() -> None:
    trace = one_trace(1)
    free = Limits(heap_bytes=0, direct_bytes=0, coalescing=False)
    assert_same(kernel.replay(trace, free, 50), replay_by_the_real_limiter(trace, free, 50))
