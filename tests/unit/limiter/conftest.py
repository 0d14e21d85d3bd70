"""Own the fixtures of the limiter's tests."""

import pytest

from tests.support.loops.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
