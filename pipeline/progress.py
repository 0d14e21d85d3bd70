"""Show how far a long step is: a line on standard error now and then, and none for a short one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final, TextIO

from pyspark.sql import SparkSession

from pipeline.session import task_counts

__all__ = ["watched"]

INTERVAL_SECONDS: Final = 3.0


@contextmanager
def watched(spark: SparkSession, label: str, stream: TextIO | None = None) -> Iterator[None]:
    """Print the tasks that are done, of those of the step under way, until the block ends."""
    with watching(label, lambda: task_counts(spark), stream or sys.stderr, INTERVAL_SECONDS):
        yield


@contextmanager
def watching(
    label: str, count: Callable[[], tuple[int, int]], stream: TextIO, interval_seconds: float
) -> Iterator[None]:
    """Print what `count` gives, done and all, each time that it changed; ends with the block."""
    over = Event()

    def watch() -> None:
        before = (0, 0)
        while not over.wait(interval_seconds):
            now = count()
            if now != before and now[1]:
                print(f"{label}: {now[0]} of {now[1]} tasks", file=stream, flush=True)
            before = now

    watcher = Thread(target=watch, name=f"progress of {label}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
