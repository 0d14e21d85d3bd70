"""Topic lists and slow readers once more, every client with TLS: what they promise holds there too."""

from pathlib import Path

import pytest

from tests.integration.test_memory_rules import *  # noqa: F403
from tests.integration.test_output_order import *  # noqa: F403
from tests.integration.test_shared_lists import *  # noqa: F403
from tests.integration.test_slow_readers import *  # noqa: F403
from tests.integration.test_spill import *  # noqa: F403
from tests.support.auth.tls import serve_with_tls


@pytest.fixture(autouse=True)
def with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with_tls(tmp_path, monkeypatch)
