"""The workflows of the forge, without it: their schema, what they may do, and that what they call is here."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.programs import ran, succeeded
from tests.support.tools import tool

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def loaded(file: Path) -> dict[str, Any]:
    # YAML 1.1 takes the word `on` for true.
    found: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    found["on"] = found.pop(True)
    return found


def jobs(file: Path) -> list[dict[str, Any]]:
    return list(loaded(file)["jobs"].values())


def commands(file: Path) -> str:
    return "\n".join(step["run"] for job in jobs(file) for step in job.get("steps", ()) if "run" in step)


@each
def test_the_forge_accepts_the_file(file: Path) -> None:
    asked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(file)]
    succeeded(asked)


@each
def test_an_action_is_pinned_by_commit_with_its_version_beside_it(file: Path) -> None:
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if "uses:" in line]
    wrong = [
        line
        for line in lines
        if "./.github/" not in line and not re.fullmatch(r"(- )?uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+", line)
    ]
    assert wrong == []


@each
def test_a_workflow_may_only_read_unless_a_job_says_more(file: Path) -> None:
    assert loaded(file)["permissions"] == {"contents": "read"}
    for job in jobs(file):
        assert "uses" in job or "timeout-minutes" in job
        # What is kept after the checkout can be read by every later step.
        for step in job.get("steps", ()):
            if step.get("uses", "").startswith("actions/checkout@") and "permissions" not in job:
                assert step["with"]["persist-credentials"] is False


@each
def test_every_target_and_script_that_is_called_is_here(file: Path) -> None:
    text = commands(file)
    called = {word for words in re.findall(r"\bmake ((?:[a-z-]+ ?)+)", text) for word in words.split()}
    assert called <= TARGETS
    for script in re.findall(r"(?m)(?:^|\s)(\.ci/[a-z-]+)", text):
        assert (ROOT / script).is_file(), script
    for job in jobs(file):
        assert "uses" not in job or (ROOT / job["uses"]).is_file()


@each
def test_shell_of_workflows_is_what_shellcheck_wants(file: Path) -> None:
    for job in jobs(file):
        for step in job.get("steps", ()):
            # `${{ }}` is put in by the forge before a shell sees it.
            text = "#!/bin/bash\n" + re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", "true"))
            found = ran([tool("shellcheck"), "-"], input=text)
            assert (found.stdout, found.returncode) == ("", 0)


def test_no_text_of_others_gets_into_a_shell() -> None:
    for file in FILES:
        assert re.findall(r"\$\{\{(.*?)\}\}", commands(file)) == [], file.name


def pythons(job: dict[str, Any]) -> list[str]:
    """Give the Pythons that a job runs with."""
    matrix: list[str] = job.get("strategy", {}).get("matrix", {}).get("python", [])
    steps = [step.get("with", {}).get("python-version", "") for step in job["steps"]]
    return matrix or [version for version in steps if version]


def test_every_python_that_the_project_names_is_tested_and_in_the_wheelhouse() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text]
    tested = [python for job in jobs(ROOT / ".github/workflows/test.yml") for python in pythons(job)]
    assert sorted(tested) == sorted(named)
    assert re.findall(r"--python (3\.\d+)", commands(ROOT / ".github/workflows/build.yml")) == named


def test_nothing_is_published_before_all_tests_and_an_installation_of_each_file() -> None:
    release = loaded(ROOT / ".github/workflows/release.yml")
    assert set(release["jobs"]["publish"]["needs"]) == {"test", "build"}
    assert "make release-test" in commands(ROOT / ".github/workflows/build.yml")
    assert release["on"] == {"push": {"tags": ["v*.*.*"]}}
