"""Own brokers beside the one of the session: of another cluster, and of other releases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import run_proxy
from tests.pulsar.standalone import Broker, Kind, MissingToolError

# To the broker of all other tests it is abroad.
OTHER_CLUSTER: Final = "other"


@contextmanager
def in_one_line() -> Iterator[None]:
    """Fail in one line for a tool that is missing, and for a process that did not start or end well."""
    try:
        yield
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


def fixtures_before(kind: Kind, name: str) -> tuple[Any, Any, Any]:
    """Make the fixtures `broker`, `service_url` and `admin` of a package of tests before a broker of its own."""

    @pytest.fixture(scope="session")
    def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
        with in_one_line(), run_other_broker(tmp_path_factory.mktemp(name), kind) as running:
            yield running

    @pytest.fixture(scope="session")
    def service_url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        """Give the proxy's address; its process must end with 0 when the session is over."""
        with in_one_line(), run_proxy(tmp_path_factory.mktemp(f"proxy-{name}"), broker) as proxy:
            yield proxy.service_url

    @pytest.fixture(scope="session")
    def admin(broker: Broker) -> Admin:
        return Admin(broker.admin_url)

    return broker, service_url, admin
