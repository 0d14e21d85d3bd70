"""The completion scripts of shells, as files of this package: scripts/generate_completion.py writes them.

Rule: they are printed or installed as they are; the proxy needs no library for them.
"""

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


def path_of(shell: str) -> Path:
    """Give the file for a shell; raises KeyError."""
    return FOLDER / SCRIPTS[shell]
