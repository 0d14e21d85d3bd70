"""The broker is chosen in a fixed order, and a machine that cannot have one is told so in one line."""

import sys
from pathlib import Path

import pytest

from tests.pulsar import harness
from tests.pulsar.process import ChildProcess, ProcessFailedError
from tests.pulsar.standalone import MissingToolError, java_of
from tests.support.patience import patient

URLS = {"PULSAR_SERVICE_URL": "pulsar://b:6650", "PULSAR_ADMIN_URL": "http://b:8080"}


def have(monkeypatch: pytest.MonkeyPatch, maven: str | None, docker: str | None) -> None:
    monkeypatch.setattr(harness, "missing_for_maven", lambda: maven)
    monkeypatch.setattr(harness, "missing_for_docker", lambda: docker)


def test_a_url_in_the_environment_goes_before_maven(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, maven=None, docker=None)
    assert harness.check(URLS) == "env"


def test_maven_goes_before_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, maven=None, docker=None)
    assert harness.check({}) == "maven"


def test_docker_serves_where_maven_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, maven="java not found", docker=None)
    assert harness.check({}) == "docker"


def test_with_nothing_the_error_is_one_line_that_names_all_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have(monkeypatch, maven="java 11 found", docker="docker daemon not running")
    with pytest.raises(MissingToolError) as missing:
        harness.check({})
    line = str(missing.value)
    assert "\n" not in line
    assert line.endswith("java 11 found, docker daemon not running")


def test_without_a_java_that_is_new_enough_the_error_is_one_line() -> None:
    with pytest.raises(MissingToolError, match=r"^java >= 999 is needed .*, found: [\w, ]+$"):
        java_of(999)


def test_a_new_java_is_found_where_only_a_java_home_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"999.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME_999_X64", str(tmp_path))
    assert java_of(999) == str(java)


def test_a_service_url_without_an_admin_url_is_an_error() -> None:
    with pytest.raises(MissingToolError, match="PULSAR_ADMIN_URL is not: set both"):
        harness.check({"PULSAR_SERVICE_URL": "pulsar://b:6650"})


def test_a_child_that_dies_before_it_is_ready_shows_the_end_of_its_log(tmp_path: Path) -> None:
    child = ChildProcess("child", [sys.executable, "-c", "print('last words'); exit(3)"], tmp_path / "log")
    with pytest.raises(ProcessFailedError, match=r"(?s)child ended with 3 before it was ready.*last words"):
        child.wait_ready(lambda: False, timeout=patient(60))


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    child = ChildProcess("child", [sys.executable, "-c", code], tmp_path / "log")
    child.wait_ready(lambda: "up" in child.tail(), timeout=patient(60))
    assert child.stop(timeout=0.1) == -9
