"""Run a lint over the files of the packages and print its findings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("eventlog", "limiter", "pipeline", "protocol", "proxy")
GENERATED = ("protocol/pb/",)


@dataclass(frozen=True, order=True)
class Finding:
    """A sentence or statement that breaks a rule, its line and the rule."""

    line: int
    sentence: str
    reason: str


def report(check: Callable[[str], list[Finding]], arguments: Sequence[str], packages: Iterable[str] = PACKAGES) -> int:
    """Print the findings of the named files, or of all packages; return the exit status."""
    found = 0
    for path in _files(arguments or [str(ROOT / package) for package in packages]):
        name = path.resolve().relative_to(ROOT).as_posix()
        if name.startswith(GENERATED):
            continue
        for finding in check(path.read_text(encoding="utf-8")):
            print(f"{name}:{finding.line}: {finding.reason}\n    {finding.sentence}")
            found += 1
    return int(found > 0)


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
