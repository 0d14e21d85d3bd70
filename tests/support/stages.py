"""Own how long the stages of `make test` and `make rest` take.

Rule: the last run says what is slow, nobody keeps seconds by hand. As a command, for any Python 3.11 without a library:
`NAME COMMAND ...` runs a stage, `--forget` begins a new run, `--report` says of each stage of this run how long it took
and whether it failed, and names its slowest tests.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache"
SLOWEST: Final = 12


def run(name: str, command: Sequence[str], cache: Path = CACHE) -> int:
    """Run a stage and keep what it took; returns its exit code."""
    began = time.time()
    code = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, processor = time.time() - began, used.ru_utime + used.ru_stime
    print(f"{name}: {seconds:.0f} s, processor {processor:.0f} s", flush=True)
    file = cache / "stages" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"name": name, "began": began, "seconds": seconds, "processor": processor, "code": code})
    )
    return code


def forget(cache: Path = CACHE) -> None:
    """Begin a new run."""
    for file in [*cache.glob("stages/*.json"), *cache.glob("junit/*.xml")]:
        file.unlink()


def report(cache: Path = CACHE) -> list[str]:
    """Return a line for each stage of the run, in the order in which they began, and for each of its slowest tests."""
    stages: list[dict[str, Any]] = [json.loads(file.read_text()) for file in cache.glob("stages/*.json")]
    lines = [f"{'stage':<20}{'seconds':>9}{'processor':>11}"]
    for stage in sorted(stages, key=lambda stage: stage["began"]):
        failed = "  failed" if stage["code"] else ""
        lines.append(f"{stage['name']:<20}{stage['seconds']:>9.0f}{stage['processor']:>11.0f}{failed}")
    slowest = sorted(_tests(cache), reverse=True)[:SLOWEST]
    return [*lines, "slowest tests, seconds:", *(f"{seconds:>7.1f}  {test}" for seconds, test in slowest)]


def _tests(cache: Path) -> Iterator[tuple[float, str]]:
    for file in cache.glob("junit/*.xml"):
        for case in ElementTree.parse(file).iter("testcase"):
            yield float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}"


def main(arguments: Sequence[str]) -> int:
    """Run as a command; returns the exit code."""
    if list(arguments) == ["--forget"]:
        forget()
    elif list(arguments) == ["--report"]:
        print("\n".join(report()))
    else:
        return run(arguments[0], arguments[1:])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
