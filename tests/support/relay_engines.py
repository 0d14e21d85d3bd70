"""Own the choice of the relay engine for a whole run of tests: PULSAR_PROXY_TEST_ENGINE, which is read here only.

Rule: an empty variable means what an installation gets, `asyncio` that each proxy has relayEngine=asyncio. What needs
the native engine is then skipped, and fails under REQUIRE_TOOLS=1.
"""

import os
from collections.abc import Mapping, MutableMapping
from typing import Final

VARIABLE: Final = "PULSAR_PROXY_TEST_ENGINE"
CHOICES: Final = ("", "asyncio")
KEY: Final = "relayEngine"


def chosen(environ: Mapping[str, str] = os.environ) -> str:
    """Return what the whole run was asked to use; raises ValueError for anything unknown."""
    choice = environ.get(VARIABLE, "")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE}: got {choice}, expected asyncio, or nothing")
    return choice


def take_effect(environ: MutableMapping[str, str] = os.environ) -> None:
    """Have this process and its children use what was asked for; a second call changes nothing."""
    if choice := chosen(environ):
        environ[f"PULSAR_PREFIX_{KEY}"] = choice


def defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys that a proxy inside a test has because of the choice."""
    choice = chosen(environ)
    return {KEY: choice} if choice else {}
