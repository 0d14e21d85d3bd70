import threading

import pytest

from eventlog.drain import BLOCK_BYTES, LONGEST_PAUSE_SECONDS, DrainThread, StoreError
from tests.support.patience import patient
from tests.unit.eventlog.parts import Line, MemoryStore


def test_events_wait_for_others_no_longer_than_the_flush() -> None:
    line = Line(flush_seconds=1.0)
    assert line.drain.step(100.0) == 1.0
    line.put(3)
    assert line.drain.step(100.5) == 0.5
    assert line.store.blocks == []
    line.put(2)
    assert line.drain.step(101.0) == 1.0
    assert [event["seq"] for event in line.store.events] == [1, 2, 3, 4, 5]


def test_full_block_is_written_at_once() -> None:
    line = Line(limit_bytes=2**30)
    line.drain.step(100.0)
    line.put(40, broker="b" * 10_000)
    line.drain.step(100.1)
    assert len(line.store.blocks) == 1
    assert line.drain.counts.bytes_written >= BLOCK_BYTES
    assert line.drain.counts.written + line.drain.in_hand == 40


def test_pause_grows_to_its_bound_and_begins_anew_after_a_success() -> None:
    line = Line()
    line.store.failures = [StoreError("no")] * 8
    line.put()
    now, pauses = 100.0, []
    for _ in range(8):
        pauses.append(line.drain.step(now))
        now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    line.drain.step(now)
    line.store.failures = [StoreError("no")]
    line.put()
    assert line.drain.step(now + 1.0) == 1.0


def test_end_writes_what_is_left_although_what_was_written_is_gone() -> None:
    line = Line()
    line.put(3)
    line.drain.step(100.0)
    line.put(2)
    line.store.failures = [StoreError("gone", lost_events=3)]
    line.drain.finish(100.5)
    assert [(event["seq"], event["dropped_before"]) for event in line.store.events[3:]] == [(4, 3), (5, 0)]
    assert (line.drain.counts.lost, line.store.closed) == (3, 1)
    line = Line()
    line.put(2)
    line.store.failures = [StoreError("gone", lost_events=3), StoreError("gone", lost_events=1)]
    line.drain.finish(100.5)
    assert (line.drain.counts.lost, line.drain.in_hand) == (6, 0), "a second failure ends it"


def test_end_gives_up_at_the_first_failure_and_counts_the_rest() -> None:
    line = Line(limit_bytes=2**30)
    line.put(200, broker="b" * 5000)
    line.store.failures = [StoreError("no")]
    line.drain.finish(100.0)
    assert (line.drain.counts.lost, line.drain.counts.written, len(line.buffer), line.drain.in_hand) == (200, 0, 0, 0)


def thread_of(line: Line, crashed: list[Exception]) -> DrainThread:
    return DrainThread("test", line.buffer, line.drain, lambda: 100.0, crashed.append)


def test_events_of_a_thread_that_crashed_are_lost() -> None:
    class Broken(MemoryStore):
        def write(self, lines: list[bytes], now: float) -> int:
            raise RuntimeError("broken")

    line, crashed = Line(Broken(), limit_bytes=2**30), list[Exception]()
    line.put(200, broker="b" * 10_000)
    thread = thread_of(line, crashed)
    thread.start()
    assert thread.join(patient(30))
    assert (line.drain.counts.lost, line.drain.in_hand, len(line.buffer), len(crashed)) == (200, 0, 0, 1)


def test_thread_that_hangs_is_left_behind() -> None:
    go_on = threading.Event()

    class Hanging(MemoryStore):
        def tick(self, now: float) -> None:
            go_on.wait(60)

    line = Line(Hanging())
    thread = thread_of(line, [])
    thread.start()
    line.buffer.close()
    assert not thread.join(0)
    go_on.set()
    assert thread.join(patient(30))


@pytest.mark.parametrize("fault", ["open", "close"])
def test_end_survives_a_store_that_fails(fault: str) -> None:
    class Failing(MemoryStore):
        def open(self) -> None:
            if fault == "open":
                raise StoreError("no open")

        def close(self) -> None:
            raise StoreError("no close")

    line = Line(Failing())
    line.put(2)
    line.drain.finish(100.0)
    assert line.reports == [f"no {fault}"]
    assert line.drain.counts.lost + line.drain.counts.written == 2
