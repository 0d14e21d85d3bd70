"""Locks and leases: one writer of a directory of tables at a time, on any file system; those who wait get its name.

A mounted directory has a lock of its file system, which the kernel gives up with its process. Elsewhere a lease stands
for it: the newest of the numbered files under `_lease/`. A process that wants to write makes the file of the next
number, which a file system lets only one of two do, and looks again: a higher number means that it came late. The
holder changes its file while it works. A file that did not change for `STALE_SECONDS`, by the clock of the process
that looks, is left over of a dead process: no two clocks are compared, and a killed holder keeps others out for so
long.

Rule: `Held.require` goes before each commit: a holder that was stopped for too long must find out before it writes.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Final, Protocol
from uuid import uuid4

from pyspark.sql import SparkSession

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.paths import mounted
from pipeline.store.hadoop import HadoopFiles

LOCK: Final = "_lock"
LEASE: Final = "_lease"
RETRY_SECONDS: Final = 0.05
# For object stores, which bill each look.
STORE_RETRY_SECONDS: Final = 1.0
STALE_SECONDS: Final = 60.0
# Shares of the time after which others take a lease for left over: how often a holder shows that it lives, and how long
# after the last time it may still write.
BEAT_SHARE: Final = 0.2
TRUST_SHARE: Final = 0.5
# The owner and the beat of a lease that was given up.
FREE: Final = ("", "free")


class Files(Protocol):
    """The files of one directory, where a file is wholly there or not at all."""

    def names(self) -> list[str]:
        """List them; without the directory there are none."""

    def read(self, name: str) -> str | None:
        """Return a file's text, None if it is not there."""

    def create(self, name: str, text: str) -> bool:
        """Make a file and say so, unless it is there: of two at a time only one is told yes."""

    def replace(self, name: str, text: str) -> None:
        """Write a file anew, with this text only."""

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How long somebody waits, and after what time without a sign of life a lease is left over."""

    patience_seconds: float = 600.0
    stale_seconds: float = STALE_SECONDS
    retry_seconds: float = RETRY_SECONDS
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Held:
    """A lease that this process holds."""

    def __init__(self, files: Files, name: str, owner: str, where: str, clock: Clock) -> None:
        self._files = files
        self._name = name
        self._owner = owner
        self._where = where
        self._clock = clock
        self._beats = 0
        self._lived = clock.now()

    def beat(self) -> None:
        """Show that the holder lives."""
        begun = self._clock.now()
        self._beats += 1
        self._files.replace(self._name, _text(self._owner, str(self._beats)))
        # Not the time at the end: what others see may be as old as the beginning.
        self._lived = begun

    def require(self) -> None:
        """Raise PipelineError if others may take this lease for left over, or have taken it."""
        silent = self._clock.now() - self._lived
        newest = _newest(self._files)
        if newest != self._name or silent > TRUST_SHARE * self._clock.stale_seconds:
            other = _read(self._files.read(newest))[0] if newest > self._name else ""
            raise PipelineError(
                f"{self._where}: this process was held up for {silent:.0f} s and"
                f" {f'{other} writes there now' if other else 'may write no more'}: run again",
                ExitCode.FAILED,
            )

    def release(self) -> None:
        """Release the lease, so that others need not wait until it is stale."""
        self._files.replace(self._name, _text(*FREE))


def acquire(files: Files, owner: str, where: str, clock: Clock) -> Held:
    """Wait until nobody else writes, and hold the lease; raises PipelineError with the name of who does not end."""
    end = clock.now() + clock.patience_seconds
    # Never equal to what is read.
    seen, since = ("", "?"), clock.now()
    while True:
        newest = _newest(files)
        text = files.read(newest) if newest else None
        if (newest, text or "") != seen:
            seen, since = (newest, text or ""), clock.now()
        is_left_over = clock.now() - since >= clock.stale_seconds
        if not newest or _read(text) == FREE or is_left_over:
            if held := _take(files, newest, owner, where, clock):
                return held
        elif clock.now() >= end:
            raise PipelineError(
                f"{where}: {_read(text)[0] or 'another job'} has been writing there for {clock.patience_seconds:g} s,"
                " expected it to end",
                ExitCode.FAILED,
            )
        clock.sleep(clock.retry_seconds)


def _take(files: Files, newest: str, owner: str, where: str, clock: Clock) -> Held | None:
    name = f"{int(newest or '0') + 1:020d}"
    held = Held(files, name, owner, where, clock)
    # With a word of its own, so that who made the file can tell, even if the answer was lost.
    if not files.create(name, _text(owner, uuid4().hex)):
        return None
    if _newest(files) != name:
        # Numbers below the newest are deleted, so that one who comes very late can make one of them again.
        files.delete(name)
        return None
    for old in files.names():
        if old < name:
            files.delete(old)
    return held


def _newest(files: Files) -> str:
    return max((name for name in files.names() if name.isdecimal()), default="")


@contextmanager
def lock_of(root: Path, owner: str, clock: Clock | None = None) -> Iterator[None]:
    """Hold the lock of a mounted directory; raises PipelineError with the name of who does not give it up."""
    clock = clock or Clock()
    with (root / LOCK).open("a+") as lock:
        end = clock.now() + clock.patience_seconds
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.now() >= end:
                    lock.seek(0)
                    raise PipelineError(
                        f"{root}: {lock.read() or 'another job'} has been changing its tables for"
                        f" {clock.patience_seconds:g} s, expected it to end",
                        ExitCode.FAILED,
                    ) from None
            clock.sleep(clock.retry_seconds)
        lock.truncate(0)
        lock.write(owner)
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)


@contextmanager
def only_writer(spark: SparkSession, root: str, clock: Clock | None = None) -> Iterator[Callable[[], None]]:
    """Wait for who writes, and be the one; raises PipelineError with its name if it does not end.

    Gives what is to be called before each commit: it raises PipelineError if another may be the writer by now.
    """
    owner = f"{spark.conf.get('spark.app.name')}, process {os.getpid()} at {socket.gethostname()},"
    if (directory := mounted(root)) is not None:
        directory.mkdir(parents=True, exist_ok=True)
        with lock_of(directory, owner, clock):
            # No look is needed: the kernel keeps the lock.
            yield lambda: None
        return
    clock = clock or Clock(retry_seconds=STORE_RETRY_SECONDS)
    held, stop = acquire(HadoopFiles(spark, f"{root}/{LEASE}"), owner, root, clock), Event()

    def live() -> None:
        while not stop.wait(BEAT_SHARE * clock.stale_seconds):
            # A store that does not answer now may do so the next time; `Held.require` tells if that was too late.
            with suppress(Exception):
                held.beat()

    thread = Thread(target=live, name="lease", daemon=True)
    thread.start()
    try:
        yield held.require
    finally:
        stop.set()
        thread.join()
        # A store that does not answer any more: others wait until the lease is stale, and what was done is done.
        with suppress(Exception):
            held.release()


def _text(owner: str, beat: str) -> str:
    return json.dumps({"owner": owner, "beat": beat})


def _read(text: str | None) -> tuple[str, str]:
    """Return the owner and the beat; a text not written to its end yet is somebody's, but nobody's name is in it."""
    try:
        found = json.loads(text or "")
        return str(found["owner"]), str(found["beat"])
    except (ValueError, KeyError, TypeError):
        return "", ""
