"""Own the fixtures of the limiter's tests."""

import pytest

from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import Policy

ONE_LINE_OR_TURNS = ("test_semaphore", "test_semaphore_cancellation", "test_semaphore_growth", "test_upstream_defects")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in ONE_LINE_OR_TURNS:
        metafunc.parametrize("policy", ["one line", "turns"], indirect=True)


@pytest.fixture(autouse=True)
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run what is promised of the semaphore without shares again with them: for one key they are the same."""
    monkeypatch.setattr(Policy, "share_by_key", getattr(request, "param", "one line") == "turns")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
