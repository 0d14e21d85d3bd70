"""A job without Spark: its session stands still, and says whether it was stopped."""

import signal
from collections.abc import Iterator
from types import SimpleNamespace

import pytest


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Give what became of the session that a job opens; a handler of SIGTERM is taken back."""
    became: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    opened = SimpleNamespace(stop=lambda: became.append("stopped"))
    monkeypatch.setattr("pipeline.running.session.build_session", lambda app, master, conf: opened)
    yield became
    signal.signal(signal.SIGTERM, before)
