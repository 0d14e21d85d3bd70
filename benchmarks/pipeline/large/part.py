"""Every job over a hundred million events, each by its command in a process of its own, with the heap that is usual.

It takes hours and about 60 GB of disk, and is measured only where it is named. `ingest` reads the same events as lines.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.ladder.verdict import check
from benchmarks.pipeline.engine import THREADS
from benchmarks.pipeline.large.commands import looked_at
from benchmarks.pipeline.rounds import GENERATED, Json

EVENTS: Final = 100_000_000
MOST_BYTES: Final = 8 * 10**9
_CLI: Final = "pipeline.cli"
# What is recorded has 64 and 256 MiB in force; a grid of four points is replayed, and what `advise` tries besides.
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
    rows = {f"{job}, {events:,} events": row for job, row in _all(place, events).items()}
    for name, row in rows.items():
        row["cpu_us_per_event"] = round(row["cpu_seconds"] / events * 1e6, 2)
        print(f"  {name}: {row}", flush=True)
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


def _all(place: Path, events: int) -> dict[str, Json]:
    tables, lines, again = place / "tables", place / "lines", place / "again"
    found = {"generate": _made(place, "benchmarks.pipeline.generate", tables, "--events", str(events), "--distributed")}
    for job, words in JOBS.items():
        extra = ("--to", str(place / "report.html")) if job == "report" else ()
        found[job] = _made(place, _CLI, tables, *words, *extra, job=job)
    _made(place, "benchmarks.pipeline.large.lines", lines, str(tables))
    found["ingest"] = _made(place, _CLI, again, "--source", str(lines), job="ingest")
    return found


def _made(place: Path, module: str, out: Path, *words: str, job: str | None = None) -> Json:
    name = job or module.rpartition(".")[2]
    command: Sequence[str] = [
        *(sys.executable, "-m", module, *([job] if job else [])),
        *("--out", str(out), "--master", f"local[{THREADS}]", *words),
    ]
    print(f"  {name} ...", flush=True)
    return looked_at(command, place / f"{name}.log")
