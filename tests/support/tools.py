"""Own what the tests use of the system: a test asks for a program here, and never looks for it by itself.

Rule: what is missing skips the test, whose reason pytest prints, and fails it under REQUIRE_TOOLS=1, as in CI. Also a
command, for any Python 3.11 without a library: `--packages` names the Debian packages that are missing here.
"""

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

REQUIRED: Final = "REQUIRE_TOOLS"
# They need a nightly toolchain of Rust, which no release of anything brings.
OPTIONAL: Final = frozenset({"miri", "thread sanitizer"})
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {"chromium": ("chromium", "chromium-browser", "google-chrome")}
# hadolint and shellcheck are in the locked environment; packages of cargo are too old in some releases (.ci/run).
PACKAGES: Final[Mapping[str, str]] = {
    "bash": "bash",
    "buildah": "buildah",
    "chromium": "chromium",
    "curl": "curl",
    "debootstrap": "debootstrap",
    "go": "golang-go",
    "ip": "iproute2",
    "jq": "jq",
    "mandoc": "mandoc",
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
    "openssl": "openssl",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "unshare": "util-linux",
}


def tool(name: str) -> str:
    """Return the path of a program, or skip the test."""
    return tools(name)[0]


def tools(*names: str) -> list[str]:
    """Return the paths of programs that one test needs together, or skip it."""
    paths = [found(name) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            package = PACKAGES.get(name)
            unusable(name, "not found" + (f", it is in Debian's {package}" if package else ""))
    return [path for path in paths if path is not None]


def ipv6_loopback() -> None:
    """See that programs of this machine reach each other at ::1, or skip the test."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        unusable("ipv6", f"no loopback: {(error.strerror or str(error)).lower()}")


def native_extension() -> None:
    """See that relays can be native here, or skip the test."""
    from proxy.core.native import native
    from proxy.relay.threads import ENGINE_CLASS

    extension = native()
    if not extension.has(ENGINE_CLASS):
        unusable("native extension", extension.missing or "it has no relay engine")


def unusable(name: str, reason: str) -> NoReturn:
    """Skip the test: this machine lacks something, or does not let it work."""
    # Imported here: CI asks for packages before anything is installed.
    import pytest

    told = f"{name}: {reason}"
    if name not in OPTIONAL and os.environ.get(REQUIRED, "") not in {"", "0"}:
        pytest.fail(f"{told}; {REQUIRED} is set, so that this is an error", pytrace=False)
    pytest.skip(told)


def found(name: str) -> str | None:
    """Find a program: on the PATH, or beside the interpreter, whose environment need not be active."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent), "/usr/sbin"))
    return next(
        (path for path in (shutil.which(each, path=places) for each in PROGRAMS.get(name, (name,))) if path), None
    )


def packages_missing() -> list[str]:
    """Return the Debian packages of the programs that are not here."""
    return sorted({package for name, package in PACKAGES.items() if found(name) is None})


if __name__ == "__main__":
    if sys.argv[1:] != ["--packages"]:
        raise SystemExit("usage: tests.support.tools --packages")
    print(" ".join(packages_missing()))
