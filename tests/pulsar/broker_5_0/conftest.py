"""The fixtures of tests.pulsar before a broker 5.0.1, and the scenarios of its V5 client."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pulsar.own_broker import fixtures_before, in_one_line
from tests.pulsar.process import ChildProcess, Lines
from tests.pulsar.release_5_0 import BROKER_5_0, v5_client

SCENARIOS_SECONDS: Final = 240.0
STOP_SECONDS: Final = 20.0

Scenarios = dict[str, dict[str, Any]]
COUNT: Final = 20
# What the V5 client sees of each scenario (java/V5Client.java) when all is well.
WELL: Final[Scenarios] = {
    "produce": {"sent": COUNT},
    "queue": {"received": COUNT},
    "stream": {"received": COUNT},
    "namespace": {"received": COUNT, "later": COUNT},
    "regular": {"sent": COUNT, "received": COUNT},
    "transaction": {"seen_before": False, "received": COUNT, "seen_after": False},
    "closed": {"error": None},
}


broker, service_url, admin = fixtures_before(BROKER_5_0, "broker-5-0")


@pytest.fixture
def run_v5_client(tmp_path: Path) -> Callable[..., Scenarios]:
    """Give what runs the V5 client in a namespace, with a token if there is one, and returns what it saw."""

    def run(url: str, namespace: str, token: str = "") -> Scenarios:
        with in_one_line():
            command = v5_client()
        file = tmp_path / "scenarios.jsonl"
        written, seen = Lines(file), Scenarios()

        def closed() -> bool:
            lines = [json.loads(line) for line in written.news()]
            seen.update({line.pop("scenario"): line for line in lines})
            return "closed" in seen

        process = ChildProcess("v5 client", [*command, url, namespace, token, str(file)], tmp_path / "v5-client.log")
        try:
            process.wait_ready(closed, SCENARIOS_SECONDS)
        finally:
            process.stop(STOP_SECONDS)
        return seen

    return run
