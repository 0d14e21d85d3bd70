"""`python -m tests.fuzz.reduced`: keep of a campaign what takes a step that no seed and no smaller input takes.

Rule: inputs in the repository are candidates like all others, so that one that a smaller one replaces goes. Corpora of
the scanners in Rust count: what steps they take in Python decides.
"""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.generated import ROOT
from tests.fuzz import corpus
from tests.fuzz.own import fuzz
from tests.fuzz.targets import TARGETS, Target


def reduced(target: Target, candidates: Iterable[bytes]) -> list[bytes]:
    """Return the candidates that reach further than the seeds and all smaller candidates."""
    seeds = list(target.seeds())
    others = set(candidates) - set(seeds)
    found = fuzz(target, [*seeds, *sorted(others, key=lambda data: (len(data), data))], 0)
    if found.broke is not None:
        raise AssertionError(f"{target.name}: {found.error!r} by {found.broke!r}")
    return [data for data in found.kept if data in others]


def candidates_of(name: str, out: Path) -> list[bytes]:
    """Return the inputs that are kept, and those of a campaign."""
    places = [place for place in (out / name, out / f"{name}-rust") if place.is_dir()]
    return corpus.inputs(name) + [path.read_bytes() for place in places for path in sorted(place.iterdir())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reduce the corpora of all targets."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.reduced", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "fuzz-results", help="the campaign's directory")
    options = parser.parse_args(arguments)
    for target in TARGETS:
        before = corpus.inputs(target.name)
        kept = reduced(target, candidates_of(target.name, options.out))
        corpus.replace(target.name, kept)
        print(f"{target.name:14} {len(before)} inputs before, {len(kept)} now", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
