"""The demo as a whole: record, run every job, say where the report is.

Exit code 0 if everything ended well, else that of the first job that failed; what it makes stays in its directory.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline import cli
from pipeline.core.errors import PipelineError
from pipeline.demo.acts import ACTS
from pipeline.demo.record import event_files, record

__all__ = ["main"]

DIRECTORY: Final = "pipeline-demo"
MARK: Final = ".pipeline-demo"
# What `run` is told: the same storm at one and two times its load, in a small Spark.
JOBS: Final = (
    "--master", "local[2]", "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2",
    "--load", "1,2", "--fleet", "1,2", "--target-load", "1", "--p99-wait-ms", "2000",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and give its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.demo", description="record a storm of the proxy's demo and run every job on it"
    )
    parser.add_argument("--dir", default=DIRECTORY, metavar="DIR", help="made anew (default: ./%(default)s)")
    directory = Path(parser.parse_args(arguments).dir).resolve()
    begin = time.monotonic()
    try:
        files = _recorded(directory)
    except PipelineError as error:
        print(f"pipeline demo: {error}", file=sys.stderr)
        return error.code
    print(f"recorded in {time.monotonic() - begin:.0f} s: {len(files)} files in {directory / 'events'}", flush=True)
    code = cli.main(["run", "--source", str(directory / "events"), "--out", str(directory / "tables"), *JOBS])
    print(f"all in {time.monotonic() - begin:.0f} s", flush=True)
    return code


def _recorded(directory: Path) -> list[Path]:
    """Record all acts; raises PipelineError."""
    events = _begun_anew(directory) / "events"
    events.mkdir()
    for number, act in enumerate(ACTS, 1):
        print(f"recording {number} of {len(ACTS)}: {act.shows}", flush=True)
        for _ in range(act.times):
            print(f"  {record(act, events)}", flush=True)
    return event_files(events)


def _begun_anew(directory: Path) -> Path:
    """Make the directory, or empty what an earlier demo has made; raises PipelineError if it is somebody else's."""
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise PipelineError(f"--dir {directory}: got a directory that no demo has made, expected none or an empty one")
    for part in ("events", "tables"):
        if (directory / part).is_dir():
            shutil.rmtree(directory / part)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).write_text("made by python -m pipeline.demo, which empties this directory\n", "utf-8")
    return directory
