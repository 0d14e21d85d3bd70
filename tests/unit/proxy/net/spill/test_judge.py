"""Who is slow: numbers in, lists out."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

import pytest

from proxy.net.spill.judge import (
    LEAST_REST_BYTES,
    LEAST_SHARE_BYTES,
    MOST_SHARE_BYTES,
    SWEEP_SECONDS,
    ReaderWindow,
    SpillJudge,
    quick_share,
)

KIB, MIB = 1024, 1024 * 1024


@dataclass(eq=False)
class Reader:
    position: int = 0
    queued: bool = False


@dataclass(eq=False)
class List:
    readers: Collection[Reader] = ()
    rest_bytes: int = MIB
    memory_bytes: int = 0
    key: Hashable = "a"
    window: ReaderWindow | None = field(default=None)


class Watch:
    """A judge, and the clock that it is told."""

    def __init__(self, *lists: List) -> None:
        self.judge = SpillJudge()
        self.lists = list(lists)
        self.now = 0.0
        assert self.judge.look(self.now, self.lists) == []

    def sweep(self, seconds: float = SWEEP_SECONDS) -> list[List]:
        self.now += seconds
        return self.judge.look(self.now, self.lists)


def test_a_reader_that_takes_nothing_is_slow_after_a_quarter_of_a_second() -> None:
    slow = List([Reader()])
    watch = Watch(slow)
    assert watch.sweep() == []
    assert watch.sweep() == [slow]
    assert watch.sweep() == [slow], "until its next window has shown otherwise"


def test_a_list_that_waits_for_its_client_is_slow() -> None:
    waits = List()
    watch = Watch(waits)
    watch.sweep()
    assert watch.sweep() == [waits]


def test_a_list_whose_client_is_known_to_be_slow_is_slow_until_its_window_has_shown_otherwise() -> None:
    reader = Reader()
    known = List([reader])
    watch = Watch()
    known.window = watch.judge.slow_window()
    watch.lists.append(known)
    assert watch.sweep() == [known]
    reader.position += MOST_SHARE_BYTES
    assert watch.sweep() == []


def test_a_reader_that_takes_a_share_is_quick_and_is_looked_at_again() -> None:
    reader = Reader()
    taken = List([reader], rest_bytes=10 * MIB)
    watch = Watch(taken)
    watch.sweep()
    reader.position = LEAST_SHARE_BYTES
    assert watch.sweep() == []
    watch.sweep()
    assert watch.sweep() == [taken]


def test_a_reader_that_the_proxy_keeps_waiting_is_not_slow() -> None:
    watch = Watch(List([Reader(queued=True)]))
    watch.sweep()
    assert watch.sweep() == []


def test_one_quick_reader_keeps_a_shared_list_in_memory() -> None:
    quick = Reader()
    watch = Watch(List([Reader(), Reader(), quick]))
    watch.sweep()
    quick.position = MOST_SHARE_BYTES
    assert watch.sweep() == []


def test_a_small_rest_is_not_worth_a_file() -> None:
    watch = Watch(List([Reader()], rest_bytes=LEAST_REST_BYTES - 1))
    watch.sweep()
    assert watch.sweep() == []


def test_a_small_rest_that_holds_a_whole_slab_is_worth_a_file() -> None:
    held = List([Reader()], rest_bytes=1, memory_bytes=LEAST_REST_BYTES)
    over = List([Reader()], rest_bytes=0, memory_bytes=LEAST_REST_BYTES)
    watch = Watch(held, over)
    watch.sweep()
    assert watch.sweep() == [held]


def test_seconds_in_which_the_proxy_stood_still_do_not_count() -> None:
    watch = Watch(List([Reader()]))
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
