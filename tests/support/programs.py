"""Programs that a test runs to their end, and promtool, which takes JSON for the YAML that it is."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.patience import patient
from tests.support.tools import tool


def ran(command: Sequence[object], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program, and return its words and its exit code."""
    usual: dict[str, Any] = {"capture_output": True, "text": True, "timeout": patient(100), "check": False}
    done: subprocess.CompletedProcess[str] = subprocess.run([str(word) for word in command], **{**usual, **options})
    return done


def succeeded(command: Sequence[object], **options: Any) -> str:
    """Run a program that ends with 0, and return its output."""
    done = ran(command, **options)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def promtool(verb: str, document: object, directory: Path) -> str:
    """Have promtool `check` or `test` rules, and return what it says."""
    (directory / "asked.yaml").write_text(json.dumps(document))
    return succeeded([tool("promtool"), verb, "rules", "asked.yaml"], cwd=directory)
