"""Direct memory while lists are written: a list for one client leaves it by and by, one for several stays whole.

Shown of the limiter; that the kernel does the same, tests/property/test_replay_limiter.py proves.
"""

import numpy as np

from pipeline.core.model import NEVER, Limits, Trace
from tests.support.pipeline.real_limiter import replay_by_the_real_limiter


def lists(*, questions: list[int], direct_us: int) -> Trace:
    """Make lists of 60 bytes for a client each, written for 100 us; the last comes 20 us after all others."""
    n = len(questions)
    zeros, small = np.zeros(n, np.int64), np.zeros(n, np.int32)
    return Trace(
        arrival_us=np.array([0] * (n - 1) + [20], np.int64),
        question=np.array(questions, np.int32),
        share=small,
        client=np.arange(n, dtype=np.int32),
        broker=small,
        estimate_bytes=zeros,
        heap_bytes=zeros,
        direct_bytes=zeros + 60,
        upstream_us=zeros + 5,
        hold_us=zeros,
        write_us=zeros + 100,
        direct_us=zeros + direct_us,
        cancel_us=zeros + NEVER,
    )


def wait_of_the_last(trace: Trace, *, coalescing: bool = True) -> int:
    limits = Limits(direct_bytes=100, coalescing=coalescing)
    return int(replay_by_the_real_limiter(trace, limits).direct_wait_us[-1])


def test_what_a_list_for_one_has_left_is_free_for_the_next() -> None:
    assert wait_of_the_last(lists(questions=[0, 1], direct_us=66)) == 0
    assert wait_of_the_last(lists(questions=[0, 1], direct_us=70)) == 80


def test_a_list_for_two_is_held_whole_until_it_is_written() -> None:
    # The second and the third share an answer, which begins 5 us after that of the first.
    trace = lists(questions=[0, 0, 0, 1], direct_us=0)
    assert wait_of_the_last(trace) == 85
    assert wait_of_the_last(trace, coalescing=False) == 0


def test_a_list_that_takes_no_time_to_write_counts_whole() -> None:
    trace = lists(questions=[0, 1], direct_us=0)
    trace.write_us[0] = 0
    assert trace.kept_ppm.tolist() == [1_000_000, 0]
