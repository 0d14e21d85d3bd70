"""How a stream ends when it is told to, without Spark."""

import logging
import signal
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.core.errors import PipelineError
from pipeline.running import stopping
from pipeline.running.stopping import Batches, end_calls_quietly
from tests.support.patience import patient

# Longer than any machine takes to come to the point.
PATIENCE_SECONDS = patient(60)
FRAME = cast(DataFrame, None)


class Query:
    """Stands for a query: `wait` is what becomes of it while somebody waits for its end."""

    def __init__(self, done: list[str], wait: Callable[[], bool]) -> None:
        self._done = done
        self._wait = wait

    def awaitTermination(self, timeout: float) -> bool:
        return self._wait()

    def stop(self) -> None:
        self._done.append("stopped")


@pytest.fixture
def interrupts() -> Iterator[None]:
    before, filters = signal.getsignal(signal.SIGINT), [*logging.getLogger().filters]
    yield
    signal.signal(signal.SIGINT, before)
    logging.getLogger().filters[:] = filters


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_ends_a_call_without_a_traceback_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    signal.signal(signal.SIGINT, lambda number, frame: None)
    end_calls_quietly()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    logging.error("KeyboardInterrupt while sending command.")
    logging.error("another error")
    assert caplog.messages == ["another error"]


def follow(batches: Batches, query: Query, stop: Event, **more: Any) -> None:
    batches.follow(cast(StreamingQuery, query), stop, **more)


def told() -> Event:
    stop = Event()
    stop.set()
    return stop


def test_batch_under_way_ends_before_the_query_does() -> None:
    done: list[str] = []
    begun, on = Event(), Event()

    def take(frame: DataFrame, number: int) -> None:
        begun.set()
        assert on.wait(PATIENCE_SECONDS)
        done.append(f"batch {number}")

    def wait() -> bool:
        assert begun.wait(PATIENCE_SECONDS)
        on.set()
        return False

    batches = Batches(take)
    batch = Thread(target=batches.take, args=(FRAME, 3))
    batch.start()
    follow(batches, Query(done, wait), told())
    batch.join()
    assert done == ["batch 3", "stopped"]


def test_batch_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "LAST_BATCH_SECONDS", 0.0)
    done: list[str] = []

    def take(frame: DataFrame, number: int) -> None:
        # It is under way while the query is told to stop.
        follow(batches, Query(done, lambda: False), told())
        done.append("batch")

    batches = Batches(take)
    batches.take(FRAME, 0)
    assert done == ["stopped", "batch"]


def test_no_batch_begins_once_it_was_told_to_stop() -> None:
    done: list[str] = []
    batches = Batches(lambda frame, number: done.append("batch"))
    follow(batches, Query(done, lambda: False), told())
    with pytest.raises(PipelineError, match="told to stop"):
        batches.take(FRAME, 0)
    assert done == ["stopped"]
    assert batches.failure is None
