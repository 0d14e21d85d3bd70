"""Runs of jobs as processes over tables on an object store; some are killed in the middle.

How far a run is, the store tells: by the objects that it has made, of those that an undisturbed run makes. So a slow
machine kills it at the same point as a fast one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.pipeline.kills.jobs import Job
from tests.spark.conftest import TEST_CONF
from tests.spark.object_store import ObjectStore
from tests.spark.processes import kill, process

__all__ = ["Place", "Runs"]

MASTER: Final = "local[2]"
POLL_SECONDS: Final = 0.02
MOST_SECONDS: Final = 1800.0
LEASE: Final = "/_lease/"
# Said of one page and not of another of the same tables.
MADE: Final = re.compile(r"Made by pulsar-proxy-pipeline[^<\"]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Where one run has its tables, in the store, and its files, here."""

    name: str
    files: Path

    def page(self) -> str:
        """Return the page without what says when and of which tables it was made; nothing if there is none."""
        page = self.files / "report.html"
        return MADE.sub("", page.read_text("utf-8")) if page.exists() else ""


class Runs:
    """Jobs over the tables of one store."""

    def __init__(self, store: ObjectStore, directory: Path, environ: Mapping[str, str]) -> None:
        self.store = store
        self._directory = directory
        self._environ = environ
        self._made = 0

    def place(self, like: Place | None = None) -> Place:
        """Return a place of its own, with all that another has."""
        self._made += 1
        place = Place(f"run-{self._made}", self._directory / f"run-{self._made}")
        if like is None:
            place.files.mkdir()
        else:
            shutil.copytree(like.files, place.files)
            self.store.copy(f"{like.name}/", f"{place.name}/")
        return place

    def whole(self, job: Sequence[str], place: Place) -> float:
        """Run a job to its end; gives the seconds. Raises RuntimeError if it fails."""
        log = self._log(place)
        began = time.monotonic()
        with process(self._command(job, place), log, self._environ) as child:
            try:
                code = child.wait(MOST_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
        if code != 0:
            raise RuntimeError(f"{job[0]} ended with {code}: {log.read_text(errors='replace')[-3000:]}")
        return time.monotonic() - began

    def killed(self, job: Job, place: Place, is_far: Callable[[int, float], bool]) -> bool:
        """Run a job and kill it when `is_far` says so, of objects made and seconds; say whether it was at work then."""
        before, seen = set(self.objects(place)), set[str]()
        began = time.monotonic()
        with process(self._command(job.killed or job.words, place), self._log(place), self._environ) as child:
            while child.poll() is None:
                seen |= set(self.objects(place)) - before
                if is_far(len(seen), time.monotonic() - began):
                    kill(child)
                    return True
                if time.monotonic() - began > MOST_SECONDS:
                    raise RuntimeError(f"{job.words[0]}: made {len(seen)} objects and no more")
                time.sleep(POLL_SECONDS)
        return False

    def objects(self, place: Place) -> list[str]:
        """List what is in a place, but for the lease, which every run has."""
        return [name for name in self.store.names(f"{place.name}/") if LEASE not in name]

    def _log(self, place: Place) -> Path:
        number = len(list(self._directory.glob(f"{place.name}-*.log")))
        return self._directory / f"{place.name}-{number}.log"

    def _command(self, job: Sequence[str], place: Place) -> list[str]:
        words = [
            word.format(
                parquet=self.store.uri(f"{place.name}/parquet"),
                source=self.store.uri("in"),
                more=self.store.uri("more"),
                files=place.files,
            )
            for word in job
        ]
        if not any(word.startswith("--out=") for word in words):
            words += [f"--out={self.tables(place)}", "--format=delta"]
        conf = [word for key, value in (TEST_CONF | self.store.conf).items() for word in ("--conf", f"{key}={value}")]
        return [sys.executable, "-m", "pipeline.cli", *words, "--master", MASTER, *conf]

    def tables(self, place: Place) -> str:
        """Return the URI of the tables of a place."""
        return self.store.uri(f"{place.name}/tables")
