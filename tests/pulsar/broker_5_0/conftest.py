"""The fixtures of tests.pulsar before a broker 5.0.1, and the scenarios of its V5 client."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.conftest import DIRECT
from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ChildProcess, ProcessFailedError
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.release_5_0 import BROKER_5_0, v5_client
from tests.pulsar.standalone import Broker, MissingToolError

SCENARIOS_SECONDS: Final = 240.0
STOP_SECONDS: Final = 20.0

Scenarios = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        with run_other_broker(tmp_path_factory.mktemp("broker-5-0"), BROKER_5_0) as running:
            yield running
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def service_url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if DIRECT:
        yield broker.service_url
        return
    try:
        with run_proxy(tmp_path_factory.mktemp("proxy-5-0"), broker) as proxy:
            yield proxy.service_url
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Admin:
    return Admin(broker.admin_url)


@pytest.fixture
def run_v5_client(tmp_path: Path) -> Callable[..., Scenarios]:
    """Give what runs the V5 client in a namespace, with a token if there is one, and returns what it saw."""

    def run(url: str, namespace: str, token: str = "") -> Scenarios:
        try:
            command = v5_client()
        except MissingToolError as error:
            pytest.fail(str(error), pytrace=False)
        seen = tmp_path / "scenarios.jsonl"
        process = ChildProcess("v5 client", [*command, url, namespace, token, str(seen)], tmp_path / "v5-client.log")
        try:
            process.wait_ready(lambda: '"closed"' in (seen.read_text() if seen.exists() else ""), SCENARIOS_SECONDS)
        finally:
            process.stop(STOP_SECONDS)
        lines = [json.loads(line) for line in seen.read_text().splitlines()]
        return {line.pop("scenario"): line for line in lines}

    return run
