"""Dockerfiles as text, by hadolint; what they copy is there, and gets through .dockerignore."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.programs import ran
from tests.support.tools import tool

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "deploy").rglob("Dockerfile"))

each = pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)


def copied(file: Path) -> list[str]:
    """Give what a Dockerfile copies out of the context."""
    lines = [line.split() for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()]
    copies = [words[1:-1] for words in lines if words[:1] == ["COPY"] and not words[1].startswith("--from")]
    return [word for words in copies for word in words]


@each
def test_hadolint_has_nothing_to_say(file: Path) -> None:
    done = ran([tool("hadolint"), str(file)])
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@each
def test_what_is_copied_is_there_and_not_ignored(file: Path) -> None:
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}
    for name in copied(file):
        assert (ROOT / name).exists(), name
        assert {name, f"{Path(name).parent}/*{Path(name).suffix}", f"{name}/*.txt"} & kept, name


def test_shell_scripts_are_what_shellcheck_wants() -> None:
    scripts = [path for path in (ROOT / ".ci").iterdir() if path.is_file()]
    found = ran([tool("shellcheck"), *map(str, scripts)])
    assert (found.stdout, found.returncode) == ("", 0)


@each
def test_every_base_is_pinned_by_digest_and_a_python_that_is_supported(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    named = re.findall(r"(?m)^(?:FROM|ARG BASE=)\s*(\S+)", text)
    bases = [base for base in named if base != "${BASE}"]
    assert bases
    for base in bases:
        found = re.fullmatch(r"python:3\.(\d+)-slim-[a-z]+@sha256:[0-9a-f]{64}", base)
        assert found is not None, base
        classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
        assert f"Programming Language :: Python :: 3.{found[1]}" in classifiers
