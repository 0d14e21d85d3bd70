"""Inputs that are kept: small corpora that reach far, and inputs that once broke a rule."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

CORPORA: Final = Path(__file__).with_name("corpora")
REGRESSIONS: Final = Path(__file__).with_name("regressions")
MOST_BYTES: Final = 1 << 20


def kept(name: str) -> list[bytes]:
    """Return the inputs of a target that lie in the repository."""
    return inputs(name) + regressions(name)


def inputs(name: str) -> list[bytes]:
    """Return those of a target's kept inputs that reach far."""
    return [path.read_bytes() for path in _files(CORPORA / name)]


def replace(name: str, found: Iterable[bytes]) -> None:
    """Have these be the kept inputs of a target that reach far."""
    for path in _files(CORPORA / name):
        path.unlink()
    for data in found:
        write(CORPORA / name, data)


def regressions(name: str) -> list[bytes]:
    """Return the inputs that once broke the target's rule."""
    return [path.read_bytes() for path in _files(REGRESSIONS / name)]


def write(directory: Path, data: bytes) -> None:
    """Keep an input under the name that its bytes give it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def _files(directory: Path) -> Iterator[Path]:
    return iter(sorted(directory.iterdir())) if directory.is_dir() else iter(())
