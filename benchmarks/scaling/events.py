"""The event logs of a fleet: its storms, one record each, read from the files or found by the pipeline.

Both say the same of requests and questions. The files are read here without Spark, so that a run needs no Java.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.ladder.processes import CHECKOUT, LadderError

# A silence that ends a storm.
SILENT_MICROS: Final = 3_000_000
# Few events: one core of Spark is the quickest.
SMALL: Final = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=2")
JOBS: Final = (("ingest", "--source", "{events}", *SMALL), ("storms", "--times", "1", "--floor", "20", *SMALL))


def storms_in(directory: Path) -> list[dict[str, Any]]:
    """Return the storms in the event files below `directory`, in their order."""
    events = sorted(_events(directory), key=lambda event: int(event["ts_us"]))
    storms: list[list[dict[str, Any]]] = []
    for event in events:
        if not storms or event["ts_us"] - storms[-1][-1]["ts_us"] > SILENT_MICROS:
            storms.append([])
        storms[-1].append(event)
    return [_record(storm) for storm in storms]


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.rglob("events-*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from (event for event in map(json.loads, lines) if event["kind"] == "get_topics")


def _record(storm: list[dict[str, Any]]) -> dict[str, Any]:
    first = storm[0]["ts_us"]
    return {
        "requests": len(storm),
        "answered": sum(event["outcome"] == "ok" for event in storm),
        "questions": len({(event["proxy_id"], event["boot_id"], event["group_id"]) for event in storm}),
        "proxies": len({event["proxy_id"] for event in storm}),
        "response_bytes": sum(event["response_bytes"] or 0 for event in storm),
        "served_seconds": round(max(event["ts_us"] + event["total_us"] for event in storm) - first, 3) / 1e6,
        "p50_ms": median(event["total_us"] for event in storm) / 1000,
        "upstream_p50_ms": median(event["upstream_us"] or 0 for event in storm) / 1000,
    }


def found_by_the_pipeline(directory: Path) -> str:
    """Run ingest and storms of the pipeline on `directory`/events; return what they say; raises LadderError."""
    said = []
    for job, *options in JOBS:
        told = [option.format(events=directory / "events") for option in options]
        command = [sys.executable, "-m", "pipeline.cli", job, "--out", str(directory / "tables"), *told]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LadderError(f"pipeline {job}: {done.stderr.strip().splitlines()[-1:]}")
        said.append(done.stdout.strip().splitlines()[-1])
    return "; ".join(said)
