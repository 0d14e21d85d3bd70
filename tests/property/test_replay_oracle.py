"""The kernel of the replay and the real limiter do the same, request by request, on whatever trace.

The kernel is checked against the limiter's own semaphores, groups and lanes, on asyncio's loop in virtual time.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import limiter.fair_queue
from pipeline.core.buckets import count_waits
from pipeline.core.model import NEVER, Limits, Outcome, Result, Trace
from pipeline.replay import kernel, prepare
from tests.support.pipeline.real_limiter import replay_by_the_real_limiter
from tests.support.pipeline.traces import RULES, Shape, random_trace, times

# The first to run compiles the kernel; on a slow loaded machine that takes minutes.
pytestmark = pytest.mark.timeout(600)

SHAPES = [Shape(), Shape(span_us=300), Shape(questions=60, span_us=20_000), Shape(longest_us=400, brokers=1, keys=9)]


def assert_same(got: Result, expected: Result) -> None:
    for field in fields(Result):
        mine, its = getattr(got, field.name), getattr(expected, field.name)
        assert np.array_equal(mine, its), f"{field.name}: got {mine}, expected {its}"


@pytest.mark.parametrize("load", [1, 7])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("shape", range(len(SHAPES)), ids=["usual", "storm", "spread", "slow"])
def test_kernel_does_what_the_limiter_does(rule: str, shape: int, load: int) -> None:
    for seed in (1, shape):
        # Where sizes are a thousand times as large, a quantum of the turns is many bytes.
        for scale in (1, 1000):
            trace, limits = times(scale, random_trace(seed, SHAPES[shape]), RULES[rule])
            assert_same(kernel.replay(trace, limits, load), replay_by_the_real_limiter(trace, limits, load))


def test_debtors_are_forgotten_as_the_limiter_forgets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter.fair_queue, "MAX_IDLE_DEBTORS", 2)
    trace, limits = times(1000, random_trace(7, Shape(keys=30, span_us=500)), RULES["fair alone"])
    remembered = kernel.replay(trace, limits)
    monkeypatch.setattr(prepare, "MOST_IDLE_DEBTORS", 2)
    expected = replay_by_the_real_limiter(trace, limits)
    assert not np.array_equal(remembered.end_us, expected.end_us)
    assert_same(kernel.replay(trace, limits), expected)


def test_kernel_goes_on_with_more_memory() -> None:
    trace = random_trace(3, Shape(requests=6000, span_us=100, clients=4000, questions=5000, leaving=0.5))
    limits = replace(RULES["fair"], heap_queue=0, heap_timeout_us=10**6, request_timeout_us=10**6)
    assert_same(kernel.replay(trace, limits), replay_by_the_real_limiter(trace, limits))


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
        assert counted.waits.sum(axis=1).tolist() == [len(trace) - warm_up] * 3 + [answered.sum()]
        assert (counted.peak_heap_bytes, counted.peak_direct_bytes) == (
            result.peak_heap_bytes,
            result.peak_direct_bytes,
        )
        assert (counted.questions, counted.last_end_us) == (result.questions, result.end_us.max())


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
    assert_same(kernel.replay(trace, limits), replay_by_the_real_limiter(trace, limits))
