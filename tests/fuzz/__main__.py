"""`python -m tests.fuzz`: every target in turn, guided by coverage, for MINUTES in sum or RUNS inputs each.

Rule: exit code 0 if every sentence held, 1 if an input broke one; that input lies in `--out`, and belongs into
tests/fuzz/regressions/TARGET/ with the repair. With Atheris it is libFuzzer that mutates; without, `own`.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.fuzz import corpus, results
from tests.fuzz.own import fuzz
from tests.fuzz.targets import TARGETS, Target

ROOT: Final = Path(__file__).resolve().parents[2]
OWN_RUNS: Final = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and return the exit code."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [target for target in TARGETS if not options.target or target.name in options.target]
    guided = importlib.util.find_spec("atheris") is not None and not options.own
    seconds = max(1, round(options.minutes * 60 / len(chosen)))
    failed = 0
    for target in chosen:
        found = _guided(target, options, seconds) if guided else _own(target, options)
        failed |= not found["held"]
        results.add(options.out, target.name, found)
    if options.keep:
        results.keep(options.out)
    return int(failed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets in sum (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target, instead of a time")
    parser.add_argument("--target", action="append", choices=[target.name for target in TARGETS])
    parser.add_argument("--own", action="store_true", help="do not use Atheris")
    parser.add_argument("--keep", action="store_true", help=f"keep the record in {results.RESULTS.name}")
    parser.add_argument("--out", type=Path, default=ROOT / "fuzz-results", help="corpora, inputs that break a rule")
    return parser.parse_args(arguments)


def _guided(target: Target, options: argparse.Namespace, seconds: int) -> dict[str, Any]:
    limit = f"-runs={options.runs}" if options.runs else f"-max_total_time={seconds}"
    command = [sys.executable, "-m", "tests.fuzz.guided", target.name, limit, "-timeout=60"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return corpus.run_libfuzzer(target.name, target, command, options.out, ROOT, environment)


def _own(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    place = options.out / target.name
    place.mkdir(exist_ok=True)
    seeds = [*target.seeds(), *corpus.kept(target.name)]
    found = fuzz(target, seeds, options.runs or OWN_RUNS)
    for data in found.kept:
        corpus.write(place, data)
    if found.broke is not None:
        (options.out / f"{target.name}-broken").write_bytes(found.broke)
        print(f"{target.name}: {found.error!r}", file=sys.stderr)
    return {
        "held": found.broke is None, "inputs": found.inputs, "coverage": len(found.arcs), "unit": "arcs",
        "corpus": len(found.kept),
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
