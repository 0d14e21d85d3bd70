"""The command `pulsar-proxy recover-events`: what is sound of damaged files of the event log.

Rule: a line for each file, and nothing of a file is changed. Exit code 0 if all that is sound is to be had, else 1.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eventlog.recovery import copy_sound

FAILED: Final = 1


def recover_events(options: argparse.Namespace, _: Mapping[str, str]) -> int:
    """Copy the sound flushes of each damaged file into one beside it, and return the exit code."""
    return max([_recover(Path(name)) for name in options.files])


def _recover(path: Path) -> int:
    try:
        found = copy_sound(path)
    except OSError as error:
        return _fail(f"{path}: cannot be recovered: {(error.strerror or str(error)).lower()}")
    if found.to is not None:
        print(f"{path}: {found.events} events copied to {found.to}, {found.skipped_bytes} damaged bytes skipped")
        return 0
    if found.skipped_bytes:
        return _fail(f"{path}: got no sound flush, expected a file of the event log (*.jsonl.gz)")
    print(f"{path}: sound, {found.events} events")
    return 0


def _fail(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return FAILED
