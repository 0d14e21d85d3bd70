"""The limits of watchers once more, every client with TLS."""

from pathlib import Path

import pytest

from tests.integration.test_watch_limits import *  # noqa: F403
from tests.support.auth.tls import serve_with_tls


@pytest.fixture(autouse=True)
def with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with_tls(tmp_path, monkeypatch)
