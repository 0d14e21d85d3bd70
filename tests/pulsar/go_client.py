"""Owns the program in Go as a binary: its modules by the Go module proxy, built once per content of its files.

Obeys one rule: no Go on the machine is a gap that is recorded; a program that does not compile is a failure.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.tools import tool, unusable

_HERE: Final = Path(__file__).parent / "go"
_CACHE: Final = _HERE.parent.parent.parent / ".cache" / "pulsar"
# What go says if it cannot have a module, and not because of the program.
_UNREACHED: Final = ("dial tcp", "no such host", "module lookup disabled", "connection refused", "i/o timeout")


def go_program() -> list[str]:
    """Return the command of the program; skips the test if there is no Go, or no module to be had."""
    go = tool("go")
    digest = hashlib.sha256()
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((_HERE / name).read_bytes())
    built = _CACHE / f"go-{digest.hexdigest()[:16]}" / "transactions"
    if built.exists():
        return [str(built)]
    built.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: a second run may look at the same time.
    fresh = built.with_suffix(f".{os.getpid()}")
    command = [go, "build", "-trimpath", "-mod=readonly", "-o", str(fresh), "."]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=_HERE, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode and any(word in done.stderr for word in _UNREACHED):
        unusable("go", "its modules cannot be had")
    if done.returncode:
        pytest.fail(f"go build: {done.stderr.strip()}", pytrace=False)
    fresh.replace(built)
    return [str(built)]
