"""Tests here run on uvloop, as the proxy does, and the proxy's clock ticks faster than once a second."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from proxy import app

TICK_SECONDS = 0.02


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keep-alive and timeouts act at once; with a fast tick an interval of n seconds is n ticks."""
    monkeypatch.setattr(app, "TICK_SECONDS", TICK_SECONDS)
