"""Kill every job on an object store, run it again, and compare its tables with those of an undisturbed run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.ladder.verdict import check
from benchmarks.pipeline.generate.__main__ import main as generate
from benchmarks.pipeline.kills.jobs import JOBS, Job
from benchmarks.pipeline.kills.runs import Place, Runs
from benchmarks.pipeline.kills.tables import sums_of
from benchmarks.pipeline.rounds import Json
from pipeline.running.session import build_session
from tests.spark.conftest import TEST_CONF
from tests.spark.jars import delta_jars
from tests.spark.object_store import ObjectStore, object_store

EVENTS: Final = 40_000
QUICK_PART: Final = 0.1
# Parts of what an undisturbed run writes: a job is killed at the first and run again, at the second once more.
KILLED_AT: Final = (1 / 3, 2 / 3)
QUICK_KILLED_AT: Final = (1 / 2,)
ROOT: Final = Path(__file__).resolve().parents[3]


def run(quick: bool) -> Json:
    """Kill all jobs twice each; a quick run has a tenth of the events, and kills them once."""
    events = int(EVENTS * QUICK_PART) if quick else EVENTS
    killed_at = QUICK_KILLED_AT if quick else KILLED_AT
    jars = str(delta_jars())
    # For the processes and for the session that compares.
    os.environ["PIPELINE_JARS"] = jars
    with tempfile.TemporaryDirectory(prefix="bench-kills-") as name:
        directory = Path(name)
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1",
                   "SPARK_LOCAL_DIRS": str(directory / "spark")}  # fmt: skip
        with object_store(directory / "store.log") as store:
            spark = build_session("bench kills", "local[2]", TEST_CONF | store.conf, delta=True)
            try:
                _recorded(store, directory, events)
                rows = _rows(spark, Runs(store, directory, environ), killed_at)
            finally:
                spark.stop()
    checks = [
        check(what, job, float(row[name]), required, at_most=at_most)
        for job, row in rows.items()
        for name, what, required, at_most in (
            ("kills", "kills that hit it at work", len(killed_at), False),
            ("differing", "tables, or pages, that differ from those of an undisturbed run", 0, True),
        )
    ]
    return {
        "scenario": "pipeline-kills",
        "title": "jobs on an object store, killed in the middle and run again",
        "effort": {"events": events, "killed_at": [round(part, 2) for part in killed_at], "quick": quick},
        "rows": rows,
        "ratios": [],
        "checks": checks,
    }


def _recorded(store: ObjectStore, directory: Path, events: int) -> None:
    """Put event files of two recordings into the store, one line of them no event."""
    for name, seed in (("in", 1), ("more", 2)):
        words = ["--events", str(events), "--proxies", "4", "--clients", "800", "--rate", "50", "--seed", str(seed)]
        if generate([*words, "--as", "files", "--out", str(directory / name)]):
            raise RuntimeError("no events were made")
        for path in sorted((directory / name).iterdir()):
            store.put(f"{name}/{path.name}", path.read_bytes())
    store.put("in/other.jsonl", b"no json\n")


def _rows(spark: SparkSession, runs: Runs, killed_at: Sequence[float]) -> Json:
    ends: dict[str, Place] = {}
    rows: Json = {}
    for name, job in JOBS.items():
        begin = runs.place(ends.get(job.after))
        for words in job.before:
            runs.whole(words, begin)
        ends[name] = whole = runs.place(begin)
        seconds = runs.whole(job.words, whole)
        made = _made(runs, begin, whole)
        again = runs.place(begin)
        hits = [runs.killed(job, again, _far(job, part, len(made), seconds)) for part in killed_at]
        runs.whole(job.words, again)
        # Tables that neither has written to are as they were at the beginning.
        names = {each.split("/")[1] for each in made | _made(runs, begin, again) if each.startswith("tables/")}
        expected, found = (sums_of(spark, runs.tables(place), names) for place in (whole, again))
        differs = [each for each in {**expected, **found} if expected.get(each) != found.get(each)]
        differs += ["the page"] if whole.page() != again.page() else []
        rows[name] = {
            "title": "killed and run again",
            "kills": sum(hits),
            "differing": len(differs),
            "differs": differs,
            "tables": len(expected),
            "table_rows": sum(count for count, _ in expected.values()),
            "undisturbed_seconds": round(seconds, 1),
            "objects": len(made),
        }
        print(f"  {name}: {sum(hits)} kills, {len(differs)} of {len(expected)} tables differ {differs}", flush=True)
    return rows


def _made(runs: Runs, begin: Place, place: Place) -> set[str]:
    """Return what a run has made: the names of its objects below its place."""
    return set(_relative(runs, place)) - set(_relative(runs, begin))


def _relative(runs: Runs, place: Place) -> list[str]:
    return [each.removeprefix(f"{place.name}/") for each in runs.objects(place)]


def _far(job: Job, part: float, made: int, seconds: float) -> Callable[[int, float], bool]:
    """Return when a run is killed: at so many objects of those that an undisturbed one made; or seconds, of its own."""
    if job.stays:
        return lambda _, passed: passed >= part * seconds
    return lambda objects, _: objects >= max(1, round(part * made))
