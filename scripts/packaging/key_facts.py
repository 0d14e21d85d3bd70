"""The facts of a key, for every text that is generated from the table of keys."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from proxy.config.config import Config
from proxy.config.keys.key import Key

ORIGINS: Final = {
    "pulsar": "the Java proxy has it too",
    "pip-442": "PIP-442",
    "ours": "only in this proxy",
}


def sections() -> Iterator[tuple[str, list[Key[Any]]]]:
    """Yield each section of the table with its keys."""
    for section, keys in groupby(Config.keys(), key=lambda key: key.section):
        yield section, list(keys)


def facts(key: Key[Any]) -> list[str]:
    """Return the facts of a key, a few words each."""
    listed = [key.kind.expected]
    if key.unit:
        listed.append(f"unit: {key.unit}")
    if key.required:
        listed.append("required")
    listed.append("SIGHUP changes it" if key.dynamic else "a change needs a restart")
    return listed
