"""Own the choice of the relay engine for a whole run of tests: PULSAR_PROXY_TEST_ENGINE, which is read here only.

Rule: an empty variable means what an installation gets. `asyncio`: each proxy has relayEngine=asyncio, whether or not
the extension is here. `none`: no process of the run finds the extension, as if nobody had ever built one; `make test
NATIVE=none` asks for that. What needs the extension is skipped in both, and fails under REQUIRE_TOOLS=1.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "PULSAR_PROXY_TEST_ENGINE"
CHOICES: Final = ("", "asyncio", "none")
KEY: Final = "relayEngine"
# A folder with a module of the extension's name that cannot be imported.
IN_THE_WAY: Final = Path(__file__).with_name("without_extension")


def chosen(environ: Mapping[str, str] = os.environ) -> str:
    """Return what the whole run was asked to use; raises ValueError for anything unknown."""
    choice = environ.get(VARIABLE, "")
    if choice not in CHOICES:
        raise ValueError(f"{VARIABLE}: got {choice}, expected asyncio, none, or nothing")
    return choice


def python_path(*folders: Path | str, environ: Mapping[str, str] = os.environ) -> str:
    """Return PYTHONPATH for a child with its own folders that is to find as much of the extension as this process."""
    first = (str(IN_THE_WAY),) if chosen(environ) == "none" else ()
    return os.pathsep.join((*first, *map(str, folders)))


def take_effect(environ: MutableMapping[str, str] = os.environ, path: list[str] = sys.path) -> None:
    """Have this process and its children use what was asked for; a second call changes nothing."""
    choice = chosen(environ)
    if choice == "asyncio":
        environ[f"PULSAR_PREFIX_{KEY}"] = choice
    elif choice == "none" and str(IN_THE_WAY) not in path:
        path.insert(0, str(IN_THE_WAY))
        environ["PYTHONPATH"] = python_path(*filter(None, [environ.get("PYTHONPATH", "")]), environ=environ)


def defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the keys that a proxy inside a test has because of the choice."""
    choice = chosen(environ)
    return {KEY: choice} if choice == "asyncio" else {}
