"""Owns programs in Go as binaries: their modules by the Go module proxy, built once per content of their files.

Obeys one rule: no Go on the machine is a gap that is recorded; a program that does not compile is a failure.
"""

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.tools import tool, unusable

_CACHE: Final = Path(__file__).resolve().parents[2] / ".cache"
# What go says if it cannot have a module, and not because of the program.
_UNREACHED: Final = ("dial tcp", "no such host", "module lookup disabled", "connection refused", "i/o timeout")


def built(source: Path, room: str, name: str) -> Path:
    """Return a program, kept in a room of the cache; skips the test if there is no Go, or no module to be had."""
    go = tool("go")
    digest = hashlib.sha256()
    for file in ("main.go", "go.mod", "go.sum"):
        digest.update((source / file).read_bytes())
    program = _CACHE / room / f"go-{digest.hexdigest()[:16]}" / name
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: a second run may look at the same time.
    fresh = program.with_suffix(f".{os.getpid()}")
    command = [go, "build", "-trimpath", "-mod=readonly", "-o", str(fresh), "."]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=source, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode and any(word in done.stderr for word in _UNREACHED):
        unusable("go", "its modules cannot be had")
    if done.returncode:
        pytest.fail(f"go build: {done.stderr.strip()}", pytrace=False)
    fresh.replace(program)
    return program
