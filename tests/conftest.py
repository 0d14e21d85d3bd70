"""Fixtures that more than one test package asks for, and what holds for every test: its time, and its dice."""

import os
import random
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import pytest_timeout
from hypothesis import settings

from tests.support.patience import patient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pulsar.standalone import Broker


# No verdict hangs on speed: an example may take as long as the machine needs.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """Give each test the time that it has on an idle machine, be it the default's or its own mark's."""
    given = settings._replace(timeout=patient(settings.timeout))
    return bool(pytest_timeout.pytest_timeout_set_timer(item, given))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what jitter and shares by lot draw from with the test's own name: the command that repeats it repeats it."""
    random.seed(zlib.crc32(item.nodeid.encode()))


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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Give the one Spark of this session; a machine that cannot have one fails the test in one line."""
    from tests.spark.jars import MissingJarsError
    from tests.spark.one_session import one_session

    try:
        with one_session(tmp_path_factory.mktemp("warehouse")) as running:
            yield running
    except MissingJarsError as error:
        pytest.fail(str(error), pytrace=False)
