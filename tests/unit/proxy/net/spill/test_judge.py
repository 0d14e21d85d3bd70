"""Who is slow: numbers in, lists out."""

from typing import Any

import pytest

from limiter.semaphore import AsyncSemaphore
from proxy.net.spill.body import ListReader, SpillableBody
from proxy.net.spill.judge import (
    LEAST_REST_BYTES,
    LEAST_SHARE_BYTES,
    MOST_SHARE_BYTES,
    SWEEP_SECONDS,
    SpillJudge,
    quick_share,
)
from tests.support.loops.clock import ManualClock

KIB, MIB = 1024, 1024 * 1024


class Unread:
    """The bytes of a list, which nobody looks at."""

    def __init__(self, size: int) -> None:
        self.size = size


def listed(*readers: ListReader, rest_bytes: int = MIB, memory_bytes: int = 0) -> SpillableBody:
    """Return a list that these readers have begun to take, and others may."""
    permit = AsyncSemaphore("direct", 0, max_queue=0, timeout_seconds=1, clock=ManualClock()).try_acquire(memory_bytes)
    memory: Any = Unread(rest_bytes)
    read_back: Any = None
    assert permit is not None
    body = SpillableBody(memory, permit, read_back, lambda body: None, shared=True, since=0.0)
    for reader in readers:
        body.begin(reader)
    return body


class Watch:
    """A judge, and the clock that it is told."""

    def __init__(self, *lists: SpillableBody) -> None:
        self.judge = SpillJudge()
        self.lists = list(lists)
        self.now = 0.0
        assert self.judge.look(self.now, self.lists) == []

    def sweep(self, seconds: float = SWEEP_SECONDS) -> list[SpillableBody]:
        self.now += seconds
        return self.judge.look(self.now, self.lists)


def test_a_reader_that_takes_nothing_is_slow_after_a_quarter_of_a_second() -> None:
    slow = listed(ListReader())
    watch = Watch(slow)
    assert watch.sweep() == []
    assert watch.sweep() == [slow]
    assert watch.sweep() == [slow], "until its next window has shown otherwise"


def test_a_list_that_waits_for_its_client_is_slow() -> None:
    waits = listed()
    watch = Watch(waits)
    watch.sweep()
    assert watch.sweep() == [waits]


def test_a_list_whose_client_is_known_to_be_slow_is_slow_until_its_window_has_shown_otherwise() -> None:
    reader = ListReader()
    known = listed(reader)
    watch = Watch()
    known.window = watch.judge.slow_window()
    watch.lists.append(known)
    assert watch.sweep() == [known]
    reader.position += MOST_SHARE_BYTES
    assert watch.sweep() == []


def test_a_reader_that_takes_a_share_is_quick_and_is_looked_at_again() -> None:
    reader = ListReader()
    taken = listed(reader, rest_bytes=10 * MIB)
    watch = Watch(taken)
    watch.sweep()
    reader.position = LEAST_SHARE_BYTES
    assert watch.sweep() == []
    watch.sweep()
    assert watch.sweep() == [taken]


def test_a_reader_that_the_proxy_keeps_waiting_is_not_slow() -> None:
    reader = ListReader()
    reader.queued = True
    watch = Watch(listed(reader))
    watch.sweep()
    assert watch.sweep() == []


def test_one_quick_reader_keeps_a_shared_list_in_memory() -> None:
    quick = ListReader()
    watch = Watch(listed(ListReader(), ListReader(), quick))
    watch.sweep()
    quick.position = MOST_SHARE_BYTES
    assert watch.sweep() == []


def test_a_small_rest_is_not_worth_a_file() -> None:
    watch = Watch(listed(ListReader(), rest_bytes=LEAST_REST_BYTES - 1))
    watch.sweep()
    assert watch.sweep() == []


def test_a_small_rest_that_holds_a_whole_slab_is_worth_a_file() -> None:
    held = listed(ListReader(), rest_bytes=1, memory_bytes=LEAST_REST_BYTES)
    over = listed(ListReader(), rest_bytes=0, memory_bytes=LEAST_REST_BYTES)
    watch = Watch(held, over)
    watch.sweep()
    assert watch.sweep() == [held]


def test_seconds_in_which_the_proxy_stood_still_do_not_count() -> None:
    watch = Watch(listed(ListReader()))
    assert watch.sweep(30.0) == []
    assert len(watch.sweep()) == 1


@pytest.mark.parametrize(
    ("readers", "taken", "share"),
    [
        (0, 0, LEAST_SHARE_BYTES),
        (10, 0, LEAST_SHARE_BYTES),
        (1, 100 * MIB, MOST_SHARE_BYTES),
        (10, 3_000 * KIB, 150 * KIB),
    ],
)
def test_the_share_is_half_of_what_readers_take_within_bounds(readers: int, taken: int, share: int) -> None:
    assert quick_share(readers, taken) == share
