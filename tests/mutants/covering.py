"""Which test covers which line, and how long it takes: one run of each stage under coverage, in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "mutants"
# Nothing is changed in this copy.
CLEAN: Final = CACHE / "clean"
PRODUCT: Final = ("limiter", "protocol", "eventlog", "proxy", "pipeline")
# In the order of a run. The first two are of `make test`; stages with real brokers and Spark are not asked.
STAGES: Final = ("unit", "proxy", "rest")
_SETTINGS: Final = """[run]
data_file = {data}
parallel = true
core = ctrace
context = ${{PYTEST_CURRENT_TEST-}}
include = {include}
"""


def _listed(name: str) -> list[str]:
    """Return a list of test files from the Makefile."""
    command = ["make", "-s", f"--eval=listed: ; @echo $({name})", "listed"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split()


def _arguments(stage: str) -> list[str]:
    proxy = _listed("PROXY")
    match stage:
        case "unit":
            return ["-n2", *_listed("UNIT")]
        case "proxy":
            return ["-n4", *proxy]
        case _:
            return [
                "-n4",
                "tests/integration",
                *_listed("PROOF"),
                "tests/helm",
                *(f"--ignore={file}" for file in proxy),
            ]


def copy_tree(to: Path) -> None:
    """Bring a copy of all files of this tree up to date; its environment is this tree's."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    for name in names:
        target = to / name
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    for package in (*PRODUCT, "tests"):
        for path in (to / package).rglob("*.py"):
            if str(path.relative_to(to)) not in names:
                path.unlink()
    if not (to / ".venv").exists():
        (to / ".venv").symlink_to(ROOT / ".venv")


def environment(tree: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that imports the product of this copy."""
    return {**os.environ, "PYTHONPATH": str(tree), **more}


def pytest_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.plugin", *arguments]


def cover(stage: str) -> None:
    """Run a stage under coverage; what processes that a test starts run counts for that test."""
    copy_tree(CLEAN)
    parts = CACHE / f"parts-{stage}"
    shutil.rmtree(parts, ignore_errors=True)
    parts.mkdir(parents=True)
    settings = parts / "coveragerc"
    include = ",".join(f"{CLEAN / package}/*" for package in PRODUCT)
    settings.write_text(_SETTINGS.format(data=parts / "data", include=include))
    command = pytest_command(*_arguments(stage), f"--junitxml={CACHE / stage}.xml")
    subprocess.run(command, cwd=CLEAN, env=environment(CLEAN, COVERAGE_PROCESS_START=str(settings)), check=False)
    combine = [sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", f"--data-file={_data(stage)}"]
    subprocess.run([*combine, *map(str, parts.glob("data.*"))], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(parts)


def _data(stage: str) -> Path:
    return CACHE / f"{stage}.coverage"


def covered(stage: str) -> bool:
    return _data(stage).exists()


@cache
def _contexts(stage: str, file: str) -> dict[int, list[str]]:
    from coverage import CoverageData

    data = CoverageData(basename=str(_data(stage)))
    data.read()
    # The data may have been made in another checkout.
    measured = [each for each in data.measured_files() if each.endswith(f"/{CLEAN.name}/{file}")]
    found: dict[int, list[str]] = data.contexts_by_lineno(measured[0]) if measured else {}
    return found


def tests_of(stage: str, file: str, line: int) -> set[str]:
    """Return the tests of a stage that run a line and pass."""
    # A process that a test starts says the part of the test, too.
    found = {re.sub(r" \((setup|call|teardown)\)$", "", test) for test in _contexts(stage, file).get(line, [])}
    return found & seconds(stage).keys()


@cache
def seconds(stage: str) -> dict[str, float]:
    """Return what each test that passed took, by its node's name."""
    return {test: taken for test, taken, passed in _cases(CACHE / f"{stage}.xml") if passed}


def _cases(path: Path) -> Iterable[tuple[str, float, bool]]:
    for case in ElementTree.parse(path).iter("testcase"):
        passed = not any(child.tag in ("failure", "error", "skipped") for child in case)
        yield _node(case.get("classname", ""), case.get("name", "")), float(case.get("time", 0)), passed


@cache
def _module(classname: str) -> tuple[str, tuple[str, ...]]:
    parts = classname.split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (ROOT / file).exists():
            return file, tuple(parts[length:])
    return classname, ()


def _node(classname: str, name: str) -> str:
    file, classes = _module(classname)
    return "::".join((file, *classes, name))
