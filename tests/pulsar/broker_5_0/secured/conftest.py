"""The fixtures of tests.pulsar.secured before a broker 5.0.1 at its defaults.

It wants to see the clients' own credentials (`authenticateOriginalAuthData`).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pulsar.harness import run_other_broker
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.release_5_0 import BROKER_5_0

# The same fixtures, before the broker of this package.
from tests.pulsar.secured.conftest import admin, credentials, namespace  # noqa: F401
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, SecuredProxy, broker_kind, run_secured_proxy
from tests.pulsar.standalone import MissingToolError
from tests.support.sockets.ports import free_ports


@pytest.fixture(scope="session")
def broker(
    credentials: Credentials,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SecuredBroker]:
    ports = free_ports(2)
    kind = broker_kind(credentials, *ports)
    keys = {key: value for key, value in kind.keys.items() if key != "authenticateOriginalAuthData"}
    kind = replace(BROKER_5_0, keys=keys, admin_token=kind.admin_token, files=kind.files)
    try:
        with run_other_broker(tmp_path_factory.mktemp("secured-5-0"), kind) as running:
            yield SecuredBroker(running.service_url, running.admin_url, running.origin, *ports)
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def secured_proxy(
    broker: SecuredBroker,
    credentials: Credentials,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Callable[..., SecuredProxy]]:
    """Give a maker of proxies before the secured broker, each with keys of its own; all must end well."""
    try:
        with ExitStack() as stack:
            yield lambda **keys: stack.enter_context(run_secured_proxy(tmp_path, broker, credentials, keys))
    except ProcessFailedError as error:
        pytest.fail(str(error), pytrace=False)
