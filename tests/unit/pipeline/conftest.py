"""What more than one test of the pipeline's plain Python asks for."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
