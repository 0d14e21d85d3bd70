"""Write the completion scripts of proxy/completion from the command line's parser, by shtab.

`--check` writes nothing and fails if a file differs, so that the parser stays the only source.
"""

import argparse
import sys
from pathlib import Path
from typing import Final

import shtab

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from proxy.cli.completions import SCRIPTS, path_of  # noqa: E402
from proxy.cli.main import whole_parser  # noqa: E402
from scripts.generated import write_or_check  # noqa: E402

COMPLETIONS: Final = {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY}


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Have each option whose value is a file complete names of files; the parser itself knows no shell."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_files(command)
        elif action.metavar in COMPLETIONS:
            action.complete = COMPLETIONS[action.metavar]  # type: ignore[attr-defined]


def scripts() -> dict[Path, str]:
    """Give the script of each shell."""
    parser = whole_parser()
    complete_files(parser)
    return {path_of(shell): shtab.complete(parser, shell=shell).rstrip() + "\n" for shell in SCRIPTS}


def main() -> int:
    return write_or_check("scripts.generate_completion", scripts)


if __name__ == "__main__":
    raise SystemExit(main())
