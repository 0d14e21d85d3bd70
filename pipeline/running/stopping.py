"""The end of a stream that is told to stop: the batch under way ends first, and no other begins.

Rule: what a batch writes is known by its number, so that one that is cut off, or refused here, comes again.
"""

import logging
import signal
import threading
from collections.abc import Callable
from threading import Event, Lock
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.core.errors import ExitCode, PipelineError

POLL_SECONDS: Final = 1
# Py4J's words, logged at the root.
INTERRUPTED_CALL: Final = "KeyboardInterrupt while sending command."
# A batch that is under way when the job is told to stop has this long to end; then it is cut off, and comes again.
LAST_BATCH_SECONDS: Final = 300.0


def set_by_sigterm() -> Event:
    """Return what SIGTERM sets from now on; it no longer ends the process."""
    stop = Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    return stop


def end_calls_quietly() -> None:
    """Make Ctrl-C end a job by KeyboardInterrupt alone, as before Spark set its own handler of SIGINT.

    Spark's handler calls the JVM in the midst of another call, which cannot be, and Py4J logs a traceback of each.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addFilter(_is_no_interrupted_call)


def _is_no_interrupted_call(record: logging.LogRecord) -> bool:
    return record.msg != INTERRUPTED_CALL


class Batches:
    """The batches of one query, for its `foreachBatch`; `failure` is what one of them failed with."""

    def __init__(self, take: Callable[[DataFrame, int], None]) -> None:
        self.failure: Exception | None = None
        self._take = take
        self._under_way = Lock()
        self._stopping = False

    def take(self, frame: DataFrame, number: int) -> None:
        """Take a batch, unless the query is to stop; raises PipelineError then."""
        with self._under_way:
            if self._stopping:
                raise PipelineError("told to stop", ExitCode.FAILED)
            try:
                self._take(frame, number)
            except Exception as error:
                # Spark passes on its text only.
                self.failure = error
                raise

    def follow(self, query: StreamingQuery, stop: Event, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait for the end of the query, or have it end once `stop` is set; raises StreamingQueryException."""
        while not query.awaitTermination(POLL_SECONDS):
            meanwhile()
            if stop.is_set():
                self._stop(query)
                return

    def _stop(self, query: StreamingQuery) -> None:
        self._stopping = True
        if self._under_way.acquire(timeout=LAST_BATCH_SECONDS):
            self._under_way.release()
        query.stop()
