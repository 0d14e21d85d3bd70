"""Write all generated files, or check that they are what their generators give.

    python -m scripts.generate [--check] [--only NAME]

A generator is a module `generate_NAME`; its function `files` returns the text of each file. With `--check` nothing is
written, and a file that differs is an error, so that the tables remain the only source.
"""

import argparse
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from scripts.generated import ROOT

NAMES: Final = sorted(path.stem.removeprefix("generate_") for path in Path(__file__).parent.glob("generate_*.py"))


def write(files: Mapping[Path, str]) -> None:
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def stale(files: Mapping[Path, str]) -> list[str]:
    """Return the files whose content on disk is not the given one, as paths below the root."""
    kept = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in files}
    return [str(path.relative_to(ROOT)) for path, content in files.items() if kept[path] != content]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a file differs instead of writing it")
    parser.add_argument("--only", choices=NAMES, action="append", help="this generator only; may be repeated")
    options = parser.parse_args()
    failed = False
    for name in options.only or NAMES:
        files = import_module(f"scripts.generate_{name}").files()
        if not options.check:
            write(files)
        elif names := stale(files):
            failed = True
            print(f"out of date: {', '.join(names)}; run python -m scripts.generate --only {name}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
