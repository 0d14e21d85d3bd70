"""A job at work: its session, and how far a long step is: a line on standard error now and then, none for a short one.

Rule: a step within a step goes by its own name.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import Final, TextIO

from pyspark.sql import SparkSession

from pipeline.core.options import CommonSettings
from pipeline.core.paths import refuse_unwritable
from pipeline.running.session import open_session, task_counts
from pipeline.running.stopping import end_calls_quietly

INTERVAL_SECONDS: Final = 3.0
# The names of the steps under way, the innermost last.
_STEPS: Final[list[str]] = []


@contextmanager
def at_work(
    job: str, common: CommonSettings, *, quiet: bool = False, writes: bool = True
) -> Iterator[SparkSession]:
    """Open the session of a job, which ends with the block; show how far it is unless `quiet`, as streams are.

    Raises PipelineError where the job `writes` tables and cannot.
    """
    if writes:
        refuse_unwritable("--out", common.out)
    end_calls_quietly()
    session = open_session(job, common)
    # Spark has set a handler of its own.
    end_calls_quietly()
    try:
        with nullcontext() if quiet else watched(session, job):
            yield session
    finally:
        session.stop()


@contextmanager
def watched(spark: SparkSession, label: str) -> Iterator[None]:
    """Print the tasks that are done, of those of the step under way, until the block ends."""
    _STEPS.append(label)
    try:
        if len(_STEPS) > 1:
            yield
        else:
            with watching(lambda: _STEPS[-1], lambda: task_counts(spark), sys.stderr, INTERVAL_SECONDS):
                yield
    finally:
        _STEPS.pop()


@contextmanager
def watching(
    label: Callable[[], str], count: Callable[[], tuple[int, int]], stream: TextIO, interval_seconds: float
) -> Iterator[None]:
    """Print what `count` returns, done and all, each time that it changed; ends with the block."""
    over = Event()

    def watch() -> None:
        before = (0, 0)
        while not over.wait(interval_seconds):
            now = count()
            if now != before and now[1]:
                print(f"{label()}: {now[0]} of {now[1]} tasks", file=stream, flush=True)
            before = now

    watcher = Thread(target=watch, name=f"progress of {label()}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
