"""The completion scripts of shells, made by shtab from the parser of the command line.

Rule: the build of a wheel writes the scripts into this package (scripts/packaging/hook.py), so that an installed proxy
needs no library for them. A checkout has no such files: there the scripts are made at each call.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("completion")
# Named as each shell looks for them.
SCRIPTS: Final[Mapping[str, str]] = {
    "bash": "pulsar-proxy",
    "fish": "pulsar-proxy.fish",
    "zsh": "_pulsar-proxy",
}


def script_for(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script of `parser` for a shell.

    Raises KeyError, and ModuleNotFoundError in a checkout without shtab.
    """
    packaged = FOLDER / SCRIPTS[shell]
    return packaged.read_text(encoding="utf-8") if packaged.exists() else generated(shell, parser)


def generated(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the script of `parser` for a shell as shtab makes it; raises ModuleNotFoundError without shtab."""
    import shtab

    complete_files(parser, {"FILE": shtab.FILE, "PATH": shtab.FILE, "DIR": shtab.DIRECTORY})
    return shtab.complete(parser, shell=shell).rstrip() + "\n"


def complete_files(parser: argparse.ArgumentParser, completions: Mapping[str, object]) -> None:
    """Set the completion of each option by the name of its value: the parser itself knows no shell."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                complete_files(command, completions)
        elif isinstance(action.metavar, str) and action.metavar in completions:
            action.complete = completions[action.metavar]  # type: ignore[attr-defined]
