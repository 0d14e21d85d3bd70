"""Own the commands that repeat single tests, so that a failure in a long run is tried again without a search."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def command(nodeid: str, python: Path = Path(sys.executable)) -> str:
    """Return the command that runs one test, or one module, from the root of the checkout."""
    shown = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    return shlex.join([str(shown), "-m", "pytest", nodeid])


def commands(reports: Mapping[str, Sequence[object]]) -> list[str]:
    """Return a command for each test of pytest's terminal reporter that failed in any phase, each once."""
    failed = [*reports.get("failed", ()), *reports.get("error", ())]
    named = dict.fromkeys(str(getattr(report, "nodeid", "")) for report in failed)
    return [command(nodeid) for nodeid in named if nodeid]
