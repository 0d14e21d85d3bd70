"""The fixtures of tests.pulsar before a broker 4.0.8, which has no memory limits of topic lists (PIP-442)."""

import os
from collections.abc import Iterator

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.distribution import BROKER_4_0
from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.standalone import Broker, MissingToolError


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        with run_other_broker(tmp_path_factory.mktemp("broker-4-0"), BROKER_4_0) as running:
            yield running
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def service_url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if os.environ.get("TEST_DIRECT") == "1":
        yield broker.service_url
        return
    try:
        with run_proxy(tmp_path_factory.mktemp("proxy-4-0"), broker) as proxy:
            yield proxy.service_url
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Admin:
    return Admin(broker.admin_url)
