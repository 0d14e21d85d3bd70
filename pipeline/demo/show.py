"""The demo as a whole: record each act with the proxy's own demo, run every job, say where the report is.

Exit code 0 if everything ended well, else that of the first job that failed; what it makes stays in its directory.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

from pipeline import cli
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.running.small import SMALL

DIRECTORY: Final = "pipeline-demo"
MARK: Final = ".pipeline-demo"
# A storm of the proxy's demo ends by itself after 40 s; starting and stopping take some more on a slow machine.
MOST_SECONDS: Final = 120
_TAIL_LINES: Final = 15
MASTER: Final = "local[2]"
# For a few hundred events: to compile each plan takes longer than to run it. `run` takes the small Spark by itself.
CONF: Final[Mapping[str, str]] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
# Options of `run`.
JOBS: Final = (
    "--master", MASTER, "--p99-wait-ms", "2000",
    *(word for item in CONF.items() for word in ("--conf", "=".join(item))),
)  # fmt: skip


class Act(NamedTuple):
    """An act, run once or several times: what it shows, and the options of the proxy's demo."""

    shows: str
    options: Mapping[str, str]
    times: int = 1


# The late tenth of the storm holds 7 MiB of direct memory, for longer than anybody waits. Heap memory is plenty: where
# it is not, answers that wait to grow hold up whole connections to the broker, which the replay does not know of.
LIMITS: Final[Mapping[str, str]] = {"heap-mb": "64", "direct-mb": "6"}
KEYS: Final[Mapping[str, str]] = {
    # The kernel would keep half a list for a client that does not read.
    "clientSocketSendBufferBytes": "16384",
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "2500",
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": "2500",
    # The replay has neither a disk for slow readers' lists nor a share for clients that have not read yet.
    "topicListSpillDirectory": "",
    "topicListUnprovenReadersMemoryPercent": "100",
    "eventLogProxyId": "demo-proxy",
    # The same for all acts, so that a client version or a namespace is the same in all of them.
    "eventLogSalt": "the salt of the demo",
}
ACTS: Final = (
    Act(
        "a calm time: few clients, small lists",
        {"connections": "20", "requests": "1", "topics": "1000", "namespaces": "20", "slow-share": "0"},
        times=5,
    ),
    Act(
        "everybody reconnects to a namespace of his own, one in ten reads late",
        {"connections": "300", "requests": "1", "topics": "2400", "namespaces": "300", "slow-share": "0.1",
         "late-seconds": "4"},
    ),
    Act(
        "everybody reconnects to the same few namespaces: answers are shared",
        {"connections": "200", "requests": "1", "topics": "2400", "namespaces": "4", "slow-share": "0"},
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
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
    spark = Thread(target=start_spark, daemon=True)
    spark.start()
    for number, act in enumerate(ACTS, 1):
        print(f"recording {number} of {len(ACTS)}: {act.shows}", flush=True)
        for _ in range(act.times):
            print(f"  {record(act, events)}", flush=True)
        # In the calm time nobody waits; a storm has the machine to itself.
        spark.join()
    return event_files(events)


def start_spark() -> None:
    """Import the jobs, and start the Spark in which they will run; what is wrong they say themselves."""
    with suppress(PipelineError, ImportError):
        import_module("pipeline.jobs.run")
        import_module("pipeline.running.session").build_session("demo", MASTER, {**SMALL, **CONF})


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


def command(act: Act, events: Path, limits: Sequence[str] = ()) -> list[str]:
    """Return the command of an act; `limits` are settings that go before the demo's own."""
    options = [word for name, value in {**LIMITS, **act.options}.items() for word in (f"--{name}", value)]
    keys = [f"{name}={value}" for name, value in KEYS.items()]
    settings = [word for setting in (*keys, *limits) for word in ("--set", setting)]
    return [sys.executable, "-m", "proxy", "demo", *options, *settings, "--event-log", str(events), "--accept-refusals"]


def record(act: Act, events: Path) -> str:
    """Run an act and return the last line that it prints; raises PipelineError if it breaks."""
    words = command(act, events)
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise PipelineError(f"the proxy's demo did not end within {MOST_SECONDS} s", ExitCode.FAILED) from error
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
        raise PipelineError(f"the proxy's demo ended with code {done.returncode}:\n{tail}", ExitCode.FAILED)
    return done.stdout.strip().splitlines()[-1]


def event_files(events: Path) -> list[Path]:
    """List what was recorded, finished files only; raises PipelineError if there is nothing."""
    found = sorted(path for path in events.glob("*.jsonl.gz") if not path.name.startswith("."))
    if not found:
        raise PipelineError(f"found no event file in {events}, expected one for each act", ExitCode.FAILED)
    return found
