"""Write generated files, or check that they are what their generator gives: the command line of all generators.

Rule: `--check` writes nothing and fails if a file differs, so that the declarations stay the only source.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(generator: str, files: Callable[[], Mapping[Path, str]]) -> int:
    """Write what `files` gives or, with `--check`, name those that differ; gives the exit code."""
    parser = argparse.ArgumentParser(prog=generator)
    parser.add_argument("--check", action="store_true", help="fail if a file differs instead of writing it")
    check: bool = parser.parse_args().check
    stale = []
    for path, content in files().items():
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != content:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"out of date: {', '.join(stale)}; run python -m {generator}", file=sys.stderr)
    return 1 if stale else 0
