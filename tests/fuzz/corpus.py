"""Inputs that are kept, small corpora that reach far and inputs that once broke a rule, and libFuzzer from there on."""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.fuzz.targets import LONGEST, Target

CORPORA: Final = Path(__file__).with_name("corpora")
REGRESSIONS: Final = Path(__file__).with_name("regressions")
MOST_BYTES: Final = 1 << 20
_UNITS: Final = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVERAGE: Final = re.compile(r"cov: (\d+) ft: (\d+)")


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


def run_libfuzzer(
    name: str, target: Target, command: Sequence[str], out: Path, cwd: Path, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run libFuzzer from the seeds and kept inputs of a target, write its log into `out`, and return what it did."""
    place = (out / name).resolve()
    for data in [*target.seeds(), *kept(target.name)]:
        write(place, data)
    flags = [f"-max_len={LONGEST}", "-print_final_stats=1", f"-artifact_prefix={place}-broken-", str(place)]
    ended = subprocess.run(
        [*command, *flags], cwd=cwd, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    (out / f"{name}.log").write_text(ended.stderr + ended.stdout)
    units, covered = _UNITS.findall(ended.stderr), _COVERAGE.findall(ended.stderr)
    if not units:
        print(ended.stderr[-2000:], file=sys.stderr)
    return {
        "held": ended.returncode == 0,
        "inputs": int(units[-1]) if units else 0,
        "coverage": int(covered[-1][0]) if covered else 0,
        "unit": "edges",
        "corpus": len(list(place.iterdir())),
    }
