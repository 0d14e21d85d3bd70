"""Every job over a hundred million events, each by its command in a process of its own, with the heap that is usual.

The part takes hours and about 40 GB of disk, and is measured only where it is named. `ingest` works in steps of equal
size, so that it reads a tenth of the events, as lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.ladder.verdict import check
from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.large.commands import looked_at
from benchmarks.pipeline.rounds import GENERATED, Json

EVENTS: Final = 100_000_000
MOST_BYTES: Final = 8 * 10**9
OF_INGEST: Final = 10
_CLI: Final = "pipeline.cli"
# The recorded events have 64 and 256 MiB in force; a grid of four points is replayed, and what `advise` tries besides.
_GRID: Final = ("--load", "1", "--fleet", "1", "--heap-mb", "64,256", "--direct-mb", "64,256")
JOBS: Final[dict[str, tuple[str, ...]]] = {
    "usage": (),
    "storms": (),
    "whatif": _GRID,
    "advise": ("--load", "1", "--p99-wait-ms", "60000"),
    "report": (),
    "compact": (),
}


def run(quick: bool) -> Json:
    """Measure; a quick run takes a hundredth of the events."""
    events = EVENTS // 100 if quick else EVENTS
    place = GENERATED / f"large-{events}"
    place.mkdir(parents=True, exist_ok=True)
    rows = {}
    for job, many, words in _commands(place, events):
        print(f"  {job} ...", flush=True)
        row = looked_at(words, place / f"{job}.log")
        row["cpu_us_per_event"] = round(row["cpu_seconds"] / many * 1e6, 2)
        print(f"  {job}: {row}", flush=True)
        rows[f"{job}, {many:,} events"] = row
    return {
        "scenario": "pipeline-large",
        "title": f"every job over {events:,} events",
        "effort": {"events": events, "rounds": 1},
        "rows": rows,
        "ratios": [],
        "checks": [
            *(check("peak RSS, bytes", name, row["peak_rss_bytes"], MOST_BYTES) for name, row in rows.items()),
            *(check("exit code", name, row["exit_code"], 0) for name, row in rows.items()),
        ],
    }


def _commands(place: Path, events: int) -> Iterator[tuple[str, int, list[str]]]:
    tables, lines = place / "tables", place / "lines"
    made = ("--events", str(events), "--distributed")
    yield "generate", events, _command("benchmarks.pipeline.generate", tables, *made)
    for job, words in JOBS.items():
        extra = ("--to", str(place / "report.html")) if job == "report" else ()
        yield job, events, _command(_CLI, tables, *words, *extra, job=job)
    some = ("--every", str(OF_INGEST))
    yield "lines", events // OF_INGEST, _command("benchmarks.pipeline.large.lines", lines, str(tables), *some)
    yield "ingest", events // OF_INGEST, _command(_CLI, place / "again", "--source", str(lines), job="ingest")


def _command(module: str, out: Path, *words: str, job: str = "") -> list[str]:
    job_of = [job] if job else []
    return [sys.executable, "-m", module, *job_of, "--out", str(out), "--master", f"local[{THREADS}]", *words]
