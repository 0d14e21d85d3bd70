"""What `serve` loads before clients can connect: loading modules is most of the time that the start takes."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patient

ROOT = Path(__file__).resolve().parents[2]
# Libraries that take long to load, and that a proxy of one plain port has no use for before it listens.
UNUSED = {"aiohttp", "cryptography", "ctypes", "email", "http", "isal", "opentelemetry", "prometheus_client"}
# Tells the modules that are loaded, and whether the collector is on, at one moment of the start; then ends at once.
PROGRAM = """
import gc, json, os, socket, sys
from proxy.cli.main import main
from proxy.cli.systemd import ServiceManager

def tell(*_):
    os.write(1, json.dumps({"modules": sorted(sys.modules), "collects": gc.isenabled()}).encode())
    os._exit(0)

if sys.argv[1] == "listens":
    socket.socket.listen = tell
else:
    ServiceManager.ready = tell
main(["serve", *sys.argv[2:]])
"""


def at(moment: str, keys: Mapping[str, object]) -> dict[str, Any]:
    """Start a proxy, and return what it tells when it first listens, or when it is ready."""
    given = {
        "brokerServiceURL": "pulsar://127.0.0.1:1", "bindAddress": "127.0.0.1", "servicePort": "0",
        "webServicePort": "", "controlSocketPath": "none", **keys,
    }  # fmt: skip
    options = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-c", PROGRAM, moment, *options]
    finished = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=patient(60), check=False)
    assert finished.stdout, finished.stderr.decode()
    told: dict[str, Any] = json.loads(finished.stdout)
    return told


def test_a_plain_proxy_listens_before_it_loads_libraries_that_it_has_no_use_for() -> None:
    assert UNUSED & {*at("listens", {"webServicePort": "0"})["modules"]} == set()


def test_a_proxy_without_a_web_port_loads_no_http_at_all() -> None:
    assert {"aiohttp", "prometheus_client"} & {*at("is ready", {})["modules"]} == set()


@pytest.mark.parametrize(
    ("library", "keys"),
    [
        ("isal", {"eventLogDirectory": "{directory}"}),
        (
            "joserfc",
            {
                "authenticationEnabled": "true",
                "authenticationProviders": "token",
                "tokenSecretKey": "data:;base64,AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            },
        ),
    ],
)
def test_libraries_of_what_is_configured_are_loaded_before_the_proxy_listens(
    library: str, keys: dict[str, str], tmp_path: Path
) -> None:
    given = {key: value.format(directory=tmp_path) for key, value in keys.items()}
    assert library in at("listens", given)["modules"]


def test_the_start_is_not_held_up_by_the_garbage_collector_which_runs_from_then_on() -> None:
    assert not at("listens", {})["collects"]
    assert at("is ready", {})["collects"]
