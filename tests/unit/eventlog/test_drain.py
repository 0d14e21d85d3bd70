import threading

import pytest

from eventlog.buffer import EventBuffer, Stamp
from eventlog.drain import BLOCK_BYTES, LONGEST_PAUSE_SECONDS, Drain, DrainThread, StoreError
from tests.unit.eventlog.parts import BOOT, Line, MemoryStore, encode, tee


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


def drain_thread(store: MemoryStore, crashed: list[Exception]) -> tuple[EventBuffer, DrainThread]:
    buffer = EventBuffer(2**20)
    drain = Drain(buffer, Stamp("proxy", BOOT, encode), store, 0.01, lambda text: None, lambda: None)
    return buffer, DrainThread("test", buffer, drain, lambda: 100.0, crashed.append)


def test_events_of_a_thread_that_crashed_are_lost() -> None:
    class Broken(MemoryStore):
        def write(self, lines: list[bytes], now: float) -> int:
            raise RuntimeError("broken")

    store = Broken()
    buffer, crashed = EventBuffer(2**30), list[Exception]()
    drain = Drain(buffer, Stamp("proxy", BOOT, encode), store, 0.01, lambda text: None, lambda: None)
    thread = DrainThread("test", buffer, drain, lambda: 100.0, crashed.append)
    log = tee([buffer])
    for _ in range(200):
        log.put({"kind": "get_topics", "broker": "b" * 10_000})
    thread.start()
    assert thread.join(30)
    assert (drain.counts.lost, drain.in_hand, len(buffer), len(crashed)) == (200, 0, 0, 1)


def test_thread_that_hangs_is_left_behind() -> None:
    go_on = threading.Event()

    class Hanging(MemoryStore):
        def tick(self, now: float) -> None:
            go_on.wait(60)

    buffer, thread = drain_thread(Hanging(), [])
    thread.start()
    buffer.close()
    assert not thread.join(0)
    go_on.set()
    assert thread.join(30)


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
