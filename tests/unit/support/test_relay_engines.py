"""The engine that a whole run of tests is asked to use, and who hears of it."""

import subprocess
import sys

import pytest

from tests.support.patience import patient
from tests.support.relay_engines import IN_THE_WAY, VARIABLE, chosen, defaults, python_path, take_effect


def test_without_a_choice_nothing_changes() -> None:
    environ: dict[str, str] = {}
    path = ["here"]
    take_effect(environ, path)
    assert (environ, path, defaults(environ)) == ({}, ["here"], {})
    assert python_path("a", "b", environ=environ) == "a:b"


def test_the_event_loop_is_asked_of_each_proxy_in_this_process_and_in_children() -> None:
    environ = {VARIABLE: "asyncio"}
    take_effect(environ, [])
    assert environ["PULSAR_PREFIX_relayEngine"] == "asyncio"
    assert defaults(environ) == {"relayEngine": "asyncio"}


def test_no_process_finds_an_extension_that_is_not_to_be_found() -> None:
    environ = {VARIABLE: "none", "PYTHONPATH": "mine"}
    path = ["here"]
    for _ in range(2):
        take_effect(environ, path)
        assert path == [str(IN_THE_WAY), "here"]
        assert environ["PYTHONPATH"] == f"{IN_THE_WAY}:mine"
    assert python_path("a", environ=environ) == f"{IN_THE_WAY}:a"
    assert defaults(environ) == {}


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{VARIABLE}: got java, expected asyncio, none, or nothing"):
        chosen({VARIABLE: "java"})


def test_the_module_in_the_way_is_as_good_as_none() -> None:
    told = "from proxy.core.native import native; print(native().missing)"
    done = subprocess.run(
        [sys.executable, "-c", told], env={"PYTHONPATH": python_path(*sys.path[1:], environ={VARIABLE: "none"})},
        capture_output=True, text=True, timeout=patient(60), check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("pulsar-proxy-native is not installed\n", "")
