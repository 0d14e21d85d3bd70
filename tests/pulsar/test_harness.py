"""The broker is chosen in a fixed order, and a machine that cannot have one is told so in one line."""

import sys
from pathlib import Path

import pytest

from tests.pulsar import harness
from tests.pulsar.process import ChildProcess, ProcessFailedError
from tests.pulsar.standalone import MissingToolError, java_of
from tests.support.patience import patient

URLS = {"PULSAR_SERVICE_URL": "pulsar://b:6650", "PULSAR_ADMIN_URL": "http://b:8080"}


@pytest.mark.parametrize(
    ("environ", "maven", "docker", "expected"),
    [
        (URLS, None, None, "env"),
        ({}, None, None, "maven"),
        ({}, "java not found", None, "docker"),
        ({}, "java 11 found", "docker daemon not running", "java 11 found, docker daemon not running"),
        ({"PULSAR_SERVICE_URL": "pulsar://b:6650"}, None, None, "PULSAR_ADMIN_URL is not: set both"),
    ],
)
def test_a_broker_is_chosen_or_one_line_names_all_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], maven: str | None, docker: str | None, expected: str
) -> None:
    monkeypatch.setattr(harness, "missing_for_maven", lambda: maven)
    monkeypatch.setattr(harness, "missing_for_docker", lambda: docker)
    try:
        found = harness.check(environ)
    except MissingToolError as error:
        found = str(error)
    assert found.endswith(expected)
    assert "\n" not in found


def test_without_a_java_that_is_new_enough_the_error_is_one_line() -> None:
    with pytest.raises(MissingToolError, match=r"^java >= 999 is needed .*, found: [\w, ]+$"):
        java_of(999)


def test_a_child_that_dies_before_it_is_ready_shows_the_end_of_its_log(tmp_path: Path) -> None:
    child = ChildProcess("child", [sys.executable, "-c", "print('last words'); exit(3)"], tmp_path / "log")
    with pytest.raises(ProcessFailedError, match=r"(?s)child ended with 3 before it was ready.*last words"):
        child.wait_ready(lambda: False, timeout=patient(60))
