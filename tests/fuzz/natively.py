"""`python -m tests.fuzz.natively`: libFuzzer on the scanners in Rust alone, each for MINUTES, by the stable compiler.

Rule: a run begins with the seeds and the kept inputs of the target in Python, whose form is the same. Exit code 0 if
every sentence held, 1 if an input broke one, 2 without cargo. The first run fetches a crate and compiles libFuzzer.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scripts.generated import ROOT
from tests.fuzz import corpus, results
from tests.fuzz.targets import BY_NAME

CRATE: Final = Path(__file__).with_name("native")
NAMES: Final = ("topic-list", "watch-scan", "producer-scan", "command-scan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.natively", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "fuzz-results", help="corpora, what breaks a rule")
    parser.add_argument("--keep", action="store_true", help=f"keep the record in {results.RESULTS.name}")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        host = _host()
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"rustc: {error}", file=sys.stderr)
        return 2
    broken = [name for name in NAMES if not _held(name, host, options.out, max(1, round(options.minutes * 60)))]
    if options.keep:
        results.keep(options.out)
    return int(bool(broken))


def _host() -> str:
    """Return the platform of the compiler: with --target the flags of the fuzzer are not those of build scripts."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return next(line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: "))


def _held(name: str, host: str, out: Path, seconds: int) -> bool:
    cargo = ["cargo", "run", "-q", "--release", "--locked", "--target", host, "--bin", name.replace("-", "_"), "--"]
    command = [*cargo, f"-max_total_time={seconds}"]
    # A fuzzer that somebody else runs with flags of his own would not find the instrumentation.
    environment = {key: value for key, value in os.environ.items() if key != "RUSTFLAGS"}
    found = corpus.run_libfuzzer(f"{name}-rust", BY_NAME[name], command, out, CRATE, environment)
    results.add(out, name + results.RUST, found)
    return bool(found["held"])


if __name__ == "__main__":
    raise SystemExit(main())
