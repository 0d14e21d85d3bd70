"""Find other distributions' packages in place of this application's: `proxy`, `limiter`, `protocol` are common names.

Rule: `serve` compares the paths of packages that are loaded anyway. A search of all distributions takes longer: only
`check-config` and `--version` do it. Both commands also look for owners of `pipeline`, which the proxy never imports.
"""

import os.path
import re
from types import ModuleType
from typing import Final

import eventlog
import limiter
import protocol
import proxy
from proxy.app.processors import usable_processors
from proxy.core.native import DO_WITHOUT, INSTALL, native
from proxy.core.version import VERSION

DISTRIBUTION: Final = "pulsar-proxy-sidecar"
ADVICE: Final = f"install {DISTRIBUTION} into an environment of its own"
PACKAGES: Final = (proxy, limiter, protocol, eventlog)
NAMES: Final = (*(each.__name__ for each in PACKAGES), "pipeline")


def misplaced() -> list[str]:
    """Return a line for each package that was not loaded from beside `proxy`."""
    home = os.path.dirname(_place(proxy))
    return [
        f"import name {each.__name__}: got {_place(each)}, expected {os.path.join(home, each.__name__)}: {ADVICE}"
        for each in PACKAGES
        if os.path.dirname(_place(each)) != home
    ]


def shared_names() -> list[str]:
    """Return a line for each other distribution here that installs a package of the same name."""
    # A slow import, which `serve` does not need.
    from importlib.metadata import distributions

    names = "|".join(NAMES)
    # A line of top_level.txt, or of RECORD: a file of a package, or a module that is one file.
    owned = re.compile(rf"^({names})(?:$|/|\.[\w.-]*,)", re.MULTILINE)
    found: dict[str, None] = {}
    for distribution in distributions():
        listed = distribution.read_text("top_level.txt") or distribution.read_text("RECORD") or ""
        for name in sorted(set(owned.findall(listed))):
            owner = distribution.name
            if re.sub(r"[-_.]+", "-", owner).lower() != DISTRIBUTION:
                found[f"import name {name}: got {owner} {distribution.version} too, expected no other: {ADVICE}"] = None
    return list(found)


def versions() -> str:
    """Return the lines that `--version` prints."""
    # A configuration is nothing that `serve` needs from here.
    from proxy.config.config import Config
    from proxy.relay.threads import choose_threads, missing_engine

    extension = native()
    found = extension.version if extension.module is not None else f"none ({extension.missing})"
    if missing_engine(extension):
        relays = f"none, {DO_WITHOUT} is needed, or: {INSTALL}"
    else:
        config = Config.load(overrides={Config.broker_service_url.name: "pulsar://unused.invalid"})
        threads = choose_threads(config, extension, usable_processors())
        relays = f"native, {threads.count} thread{'s' * (threads.count > 1)} ({threads.reason})"
    tls = ", ".join(f"{name} {version}" for name, version in extension.tls_libraries.items()) or "none"
    return f"pulsar-proxy {VERSION}\nnative extension: {found}\nTLS: {tls}\nrelay engine with the defaults: {relays}"


def _place(package: ModuleType) -> str:
    # A folder without an __init__.py has no file, a module that is one file has no path.
    paths: list[str] = list(vars(package).get("__path__") or [str(package.__file__)])
    return paths[0]
