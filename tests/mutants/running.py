"""Run each mutant against the tests that cover its line, the cheapest first, until one fails."""

import json
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypedDict

from tests.mutants.choosing import Mutant
from tests.mutants.covering import CACHE, CLEAN, copy_tree, environment, pytest_command, seconds, tests_of
from tests.mutants.plugin import EVENTS

BASELINE: Final = Path(__file__).with_name("baseline.json")
NOW: Final = Path(__file__).with_name("now.json")
KILLED: Final = ("killed", "time-out")
# What a test may take on an idle machine; conftest gives it more on a busy one.
_TEST_SECONDS: Final = 30
_FIRST_TESTS: Final = 40
_CHUNK_SECONDS: Final = 60.0
_Found = tuple[str, str]


class Result(TypedDict, total=False):
    """What became of a mutant: killed or time-out by a test of a stage, survived, uncovered, or gone.

    `tests` has for each stage how many tests ran, and how many that cover the line were left out: an open verdict.
    """

    outcome: str
    by: str
    stage: str
    tests: dict[str, list[int]]


class Results:
    """The file of results: written after each mutant, so that a run goes on where the last one stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.rows: dict[str, Result] = json.loads(path.read_text()) if path.exists() else {}

    def lacks(self, mutant: Mutant, stages: Sequence[str], open_ones: bool) -> list[str]:
        """Return the stages that a mutant that lives has not met, or has not met whole."""
        row = self.rows.get(mutant.name, {})
        if row.get("outcome") in (*KILLED, "gone"):
            return []
        met = row.get("tests", {})
        return [stage for stage in stages if stage not in met or (open_ones and met[stage][1] > 0)]

    def add(self, name: str, result: Result) -> None:
        with self._lock:
            self.rows[name] = result
            self._path.write_text(json.dumps(dict(sorted(self.rows.items())), indent=1) + "\n")


class Runner:
    """Runs tests in one copy of the tree in which one line is changed, and a killer's verdict in the clean copy."""

    def __init__(self, number: int, bound_seconds: float) -> None:
        self._tree = CACHE / f"tree-{number}"
        self._events = CACHE / f"events-{number}"
        self._ids = CACHE / f"ids-{number}"
        self._bound_seconds = bound_seconds
        self._passes: dict[str, bool] = {}

    def run(self, mutant: Mutant, stages: Sequence[str], before: Result) -> Result:
        copy_tree(self._tree)
        line = mutant.line(self._tree)
        if line is None:
            return {"outcome": "gone"}
        mutant.apply(self._tree)
        counts = dict(before.get("tests", {}))
        for stage in stages:
            ran, _ = counts.get(stage, [0, 0])
            chunks, left = self._chunks(stage, tests_of(stage, mutant.file, line), ran)
            for chunk in chunks:
                if found := self._killer(stage, chunk):
                    return {"outcome": found[0], "by": found[1], "stage": stage}
            counts[stage] = [ran + sum(map(len, chunks)), left]
        return {"outcome": "survived" if any(map(sum, counts.values())) else "uncovered", "tests": counts}

    def _chunks(self, stage: str, tests: set[str], ran: int) -> tuple[list[list[str]], int]:
        """Divide tests that have not run into runs of a minute, the cheapest first; count those beyond the bound."""
        taken = seconds(stage)
        ordered = sorted(tests, key=lambda test: (taken[test], test))[ran:]
        chunks: list[list[str]] = [[]]
        in_all = of_chunk = 0.0
        for number, test in enumerate(ordered):
            if in_all + taken[test] > self._bound_seconds:
                return [chunk for chunk in chunks if chunk], len(ordered) - number
            if of_chunk > _CHUNK_SECONDS or number == _FIRST_TESTS:
                chunks.append([])
                of_chunk = 0.0
            chunks[-1].append(test)
            in_all += taken[test]
            of_chunk += taken[test]
        return [chunk for chunk in chunks if chunk], 0

    def _killer(self, stage: str, chunk: list[str]) -> _Found | None:
        """Return the first test that fails because of the mutant: alone, too, and not in the clean copy."""
        rest = [test for test in chunk if self._passes.get(test, True)]
        while rest and (found := self._fails(self._tree, rest, stage)):
            test = found[1]
            # Unit tests run in virtual time: they do not fail twice because the machine is busy.
            if self._fails(self._tree, [test], stage) and (stage == "unit" or self._passes_clean(test, stage)):
                return found
            rest = rest[rest.index(test) + 1 :] if test in rest else []
        return None

    def _passes_clean(self, test: str, stage: str) -> bool:
        if test not in self._passes:
            self._passes[test] = self._fails(CLEAN, [test], stage) is None
        return self._passes[test]

    def _fails(self, tree: Path, tests: list[str], stage: str) -> _Found | None:
        self._events.write_text("")
        self._ids.write_text("".join(f"{test}\n" for test in tests))
        command = pytest_command("-x", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}", f"@{self._ids}")
        limit = 120 + 5 * _TEST_SECONDS + 5 * sum(seconds(stage).get(test, 0.0) for test in tests)
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment(tree, **{EVENTS: str(self._events)}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            # Processes that a test started and did not end go with it.
            _end_group(process.pid)
            process.wait()
        events = [line.split(" ", 1) for line in self._events.read_text().splitlines()]
        failed = [test for event, test in events if event == "failed"]
        if failed:
            return "killed", failed[0]
        if code == 0:
            return None
        begun = [test for event, test in events if event == "start"]
        # A test that hangs ends pytest; a mutant that breaks an import ends it before the first test.
        return "time-out" if begun else "killed", begun[-1] if begun else tests[0]


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_all(
    mutants: Sequence[tuple[Mutant, Sequence[str]]], results: Results, minutes: float, jobs: int, bound_seconds: float
) -> None:
    """Run mutants against the stages that each lacks, until the minutes are over."""
    ends = time.monotonic() + 60 * minutes
    copy_tree(CLEAN)
    waiting = deque(mutants)

    def work(number: int) -> None:
        runner = Runner(number, bound_seconds)
        while waiting and time.monotonic() < ends:
            mutant, lacks = waiting.popleft()
            began = time.monotonic()
            result = runner.run(mutant, lacks, results.rows.get(mutant.name, {}))
            results.add(mutant.name, result)
            said = f"{result['outcome']} {result.get('by', result.get('tests', ''))}"
            print(f"{mutant.name} {mutant.file} {mutant.kind}: {said} ({time.monotonic() - began:.0f} s)", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(work, range(jobs)))
