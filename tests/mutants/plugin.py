"""A plugin of pytest: tells coverage which test runs, and writes which test began and which failed."""

import os
from collections.abc import Generator

import pytest
from coverage import Coverage

from tests.support import patience

# A file with one line an event, for a process that may be ended at any moment.
EVENTS = "MUTANTS_EVENTS"


def pytest_configure() -> None:
    if EVENTS in os.environ:
        # A mutant that makes a test wait for ever costs that test's patience, on a machine that is always busy.
        patience.MOST = 3.0  # type: ignore[misc]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    measuring = Coverage.current()
    if measuring is None:
        return (yield)
    measuring.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measuring.switch_context("")


def pytest_sessionfinish(session: pytest.Session) -> None:
    measuring = Coverage.current()
    # A worker of xdist ends without what runs at the end of a process.
    if measuring is not None and hasattr(session.config, "workerinput"):
        measuring.stop()
        measuring.save()


def pytest_runtest_logstart(nodeid: str) -> None:
    _write("start", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _write("failed", report.nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    _write("end", nodeid)


def _write(event: str, nodeid: str) -> None:
    if EVENTS in os.environ:
        with open(os.environ[EVENTS], "a") as file:
            file.write(f"{event} {nodeid}\n")
