from limiter.dual import AsyncDualMemoryLimiter
from proxy.requests.topic_lists.unproven import FIRST_AVERAGE_BYTES, UnprovenReaders
from proxy.telemetry.limiter_metrics import LimiterMetrics
from tests.support.loops.clock import ManualClock

LARGE = 4 * 1024 * 1024


def readers() -> UnprovenReaders:
    clock = ManualClock()
    limiter = AsyncDualMemoryLimiter.create(
        heap_limit_bytes=1 << 30, heap_max_queue=10, heap_timeout_seconds=1.0, direct_limit_bytes=1 << 30,
        direct_max_queue=10, direct_timeout_seconds=1.0, clock=clock,
    )  # fmt: skip
    return UnprovenReaders(limiter, LimiterMetrics(clock.time), clock, 50)


def learnt(*sizes: int) -> UnprovenReaders:
    found = readers()
    for size in sizes:
        found.learn(size, known=False)
    return found


def test_large_lists_of_several_namespaces_are_soon_the_average() -> None:
    assert learnt(*[LARGE] * 20)._average_bytes > LARGE * 3 // 4


def test_lists_of_tiny_namespaces_do_not_make_the_average_small() -> None:
    assert learnt(*[LARGE] * 20, *[100] * 100_000)._average_bytes > LARGE * 3 // 4
    assert learnt(*[0] * 100_000)._average_bytes > FIRST_AVERAGE_BYTES // 2


def test_lists_of_half_the_size_do_after_a_while() -> None:
    assert learnt(*[LARGE] * 20, *[LARGE // 2] * 100)._average_bytes < LARGE * 2 // 3


def test_a_client_that_asks_for_the_same_list_again_and_again_counts_once() -> None:
    found = learnt(LARGE)
    average = found._average_bytes
    for _ in range(1000):
        found.learn(100 * LARGE, known=True)
    assert found._average_bytes == average
