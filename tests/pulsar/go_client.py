"""Owns the client of Pulsar in Go (`go/`)."""

from pathlib import Path
from typing import Final

from tests.support.go_build import built

_HERE: Final = Path(__file__).parent / "go"


def go_program() -> list[str]:
    """Return the command of the program; skips the test if there is no Go, or no module to be had."""
    return [str(built(_HERE, "pulsar", "transactions"))]
