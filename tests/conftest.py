"""Fixtures that more than one test package asks for."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.pulsar.standalone import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Broker"]:
    """Give the one real broker of this session; a machine that cannot have one fails the test in one line."""
    # Imported here: a run of the unit tests alone pays nothing for it.
    from tests.pulsar.harness import run_broker
    from tests.pulsar.process import ProcessFailedError
    from tests.pulsar.standalone import MissingToolError

    try:
        with run_broker(tmp_path_factory.mktemp("broker"), os.environ) as running:
            yield running
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)
