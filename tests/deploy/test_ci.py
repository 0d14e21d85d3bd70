"""What CI installs: nothing that starts a server, on a machine that stays as it was."""

import os
from pathlib import Path

import pytest

from tests.support.programs import ran

INSTALL = Path(__file__).resolve().parents[2] / ".ci" / "install-tools"
# An apt-get that asks, as packages do, whether a service may be started, and writes the answer down.
APT_GET = """#!/bin/sh
"$POLICY" prometheus start
echo "$? $*" >>"$SEEN"
case " $* " in *" $FAILS "*) exit 100 ;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apt-get").write_text(APT_GET)
    (tmp_path / "bin" / "apt-get").chmod(0o755)
    paths = {"POLICY": tmp_path / "policy-rc.d", "SEEN": tmp_path / "seen"}
    return {name: str(path) for name, path in paths.items()} | {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FAILS": "nothing",
    }


def install(machine: dict[str, str], *packages: str) -> int:
    done = ran([INSTALL, *packages], env=machine)
    return done.returncode


def seen(machine: dict[str, str]) -> list[list[str]]:
    return [line.split() for line in Path(machine["SEEN"]).read_text().splitlines()]


def test_no_service_may_start_while_packages_are_installed(machine: dict[str, str]) -> None:
    assert install(machine, "prometheus", "mandoc") == 0
    update, packages = seen(machine)
    assert (update[0], packages[0]) == ("101", "101")
    assert "update" in update
    assert packages[-2:] == ["prometheus", "mandoc"]
    assert not Path(machine["POLICY"]).exists()


@pytest.mark.parametrize("step", ["update", "install"])
def test_a_machine_that_cannot_install_is_left_as_it_was_and_the_failure_is_told(
    machine: dict[str, str], step: str
) -> None:
    assert install(machine | {"FAILS": step}, "prometheus") == 100
    assert not Path(machine["POLICY"]).exists()
