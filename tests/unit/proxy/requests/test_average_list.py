import pytest

from limiter.dual import AsyncDualMemoryLimiter
from proxy.requests.topic_lists.unproven import FIRST_AVERAGE_BYTES, UnprovenReaders
from proxy.telemetry.limiter_metrics import LimiterMetrics
from tests.support.loops.clock import ManualClock

LARGE = 4 * 1024 * 1024


def readers(clock: ManualClock | None = None) -> UnprovenReaders:
    clock = ManualClock() if clock is None else clock
    limiter = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=1 << 30, heap_max_queue=10, heap_timeout_seconds=1.0, direct_limit_bytes=1 << 30,
        direct_max_queue=10, direct_timeout_seconds=1.0, clock=clock,
    )  # fmt: skip
    return UnprovenReaders(limiter, LimiterMetrics(clock.time), clock, 50)


def learnt(*sizes: int) -> UnprovenReaders:
    found = readers()
    for size in sizes:
        found.learn(size, known=False, chosen=False)
    return found


def test_large_lists_of_several_namespaces_are_soon_the_average() -> None:
    assert learnt(*[LARGE] * 20)._average_bytes > LARGE * 3 // 4


@pytest.mark.threat("tiny-namespace-lists")
def test_lists_of_tiny_namespaces_do_not_make_the_average_small() -> None:
    assert learnt(*[LARGE] * 20, *[100] * 100_000)._average_bytes > LARGE * 3 // 4
    assert learnt(*[0] * 100_000)._average_bytes > FIRST_AVERAGE_BYTES // 2


@pytest.mark.threat("tiny-namespace-lists")
def test_lists_of_half_the_size_make_it_smaller_slowly() -> None:
    clock = ManualClock()
    found = readers(clock)
    for _ in range(20):
        found.learn(LARGE, known=False, chosen=False)
    for tens_of_seconds in range(1, 4):
        before = found._average_bytes
        for _ in range(1000):
            found.learn(LARGE // 2, known=False, chosen=False)
        assert before * 3 // 4 < found._average_bytes < before, f"an eighth in ten seconds, {tens_of_seconds}"
        clock.advance(10)


def test_a_large_list_after_smaller_ones_counts_at_once() -> None:
    found = learnt(LARGE, *[LARGE // 4] * 100)
    average = found._average_bytes
    found.learn(LARGE, known=False, chosen=False)
    assert found._average_bytes > average


@pytest.mark.threat("tiny-namespace-lists")
def test_lists_that_clients_choose_by_patterns_never_make_it_smaller() -> None:
    clock = ManualClock()
    found = readers(clock)
    for _ in range(1000):
        found.learn(found._average_bytes * 7 // 10, known=False, chosen=True)
        clock.advance(10)
    assert found._average_bytes == FIRST_AVERAGE_BYTES
    found.learn(LARGE, known=False, chosen=True)
    assert found._average_bytes > FIRST_AVERAGE_BYTES


@pytest.mark.threat("tiny-namespace-lists")
def test_a_client_that_asks_for_the_same_list_again_and_again_counts_once() -> None:
    found = learnt(LARGE)
    average = found._average_bytes
    for _ in range(1000):
        found.learn(100 * LARGE, known=True, chosen=False)
    assert found._average_bytes == average
