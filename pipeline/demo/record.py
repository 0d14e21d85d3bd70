"""Recording an act: the proxy's demo as a program of its own, which is ended with this one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.demo.acts import KEYS, LIMITS, Act

__all__ = ["command", "event_files", "record"]

# A storm of the proxy's demo ends by itself after 40 s; starting and stopping take some more on a slow machine.
MOST_SECONDS: Final = 120
_TAIL_LINES: Final = 15


def command(act: Act, events: Path, limits: Sequence[str] = ()) -> list[str]:
    """Give the command of an act; `limits` are settings that go before the demo's own."""
    options = [word for name, value in {**LIMITS, **act.options}.items() for word in (f"--{name}", value)]
    keys = [f"{name}={value}" for name, value in KEYS.items()]
    settings = [word for setting in (*keys, *limits) for word in ("--set", setting)]
    return [sys.executable, "-m", "proxy", "demo", *options, *settings, "--event-log", str(events), "--accept-refusals"]


def record(act: Act, events: Path) -> str:
    """Run an act and give the last line that it prints; raises PipelineError if it breaks."""
    try:
        done = subprocess.run(
            command(act, events), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MOST_SECONDS,
            check=False,
        )  # fmt: skip
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
