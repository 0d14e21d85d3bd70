import os

import pytest

from proxy.config.config import Config


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the keys that this machine may have in its environment out of the tests."""
    keys = {key.name for key in Config.keys()}  # noqa: SIM118
    for name in list(os.environ):
        if name.startswith("OTEL_") or name.removeprefix("PULSAR_PREFIX_") in keys:
            monkeypatch.delenv(name)
