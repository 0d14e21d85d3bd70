"""Own what `make test` says of itself: which stage begins, and about how long the rest takes.

Rule: the seconds of the table are those of an idle machine with two cores, once everything is downloaded. How a run
differs from the table is measured in that run. As a command, for any Python 3.11 without a library: `NAME` says that
this stage begins, `--forget` begins a new run, `--report` says how long each stage of this run took.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

RECORD: Final = Path(__file__).resolve().parents[2] / ".cache" / "stages.json"
# Whoever makes the tests much longer or shorter measures them anew: `make test` ends with the figures.
SECONDS: Final[Mapping[str, int]] = {
    "quick": 280,
    "integration": 310,
    "spark and brokers": 1100,
}


def begins(name: str, began: Mapping[str, float], now: float) -> str:
    """Say that a stage begins `now`; `began` has the moment at which each earlier one of this run did."""
    names = list(SECONDS)
    number = names.index(name)
    idle = sum(SECONDS[each] for each in names[number:])
    line = f"stage {number + 1} of {len(names)}, {name}: about {_minutes(idle)} left on an idle machine"
    here = idle * pace(name, began, now)
    return line if _minutes(here) == _minutes(idle) else f"{line}, {_minutes(here)} at the pace of this run"


def pace(name: str, began: Mapping[str, float], now: float) -> float:
    """Return how many times longer than in the table the stages of this run took so far; 1.0 before any has ended."""
    names = list(SECONDS)
    done = [each for each in names[: names.index(name)] if each in began]
    expected = sum(SECONDS[each] for each in done)
    return (now - began[done[0]]) / expected if expected else 1.0


def took(began: Mapping[str, float], now: float) -> str:
    """Say how long each stage of this run took."""
    moments = [*began.values(), now]
    each = (f"{name} {moments[at + 1] - moments[at]:.0f} s" for at, name in enumerate(began))
    return "took: " + ", ".join(each)


def _minutes(seconds: float) -> str:
    whole = max(1, round(seconds / 60))
    return f"{whole} minute{'s' * (whole > 1)}"


def main(arguments: Sequence[str] | None = None, file: Path = RECORD) -> int:
    """Run as a command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tests.support.stages")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", choices=list(SECONDS), help="say that this stage begins")
    what.add_argument("--forget", action="store_true", help="begin a new run")
    what.add_argument("--report", action="store_true", help="say how long each stage took")
    options = parser.parse_args(arguments)
    if options.forget:
        file.unlink(missing_ok=True)
        return 0
    began: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    now = time.time()
    if options.report:
        print(took(began, now))
        return 0
    # Flushed before the stage writes to the same terminal.
    print(begins(options.name, began, now), flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**began, options.name: now}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
