"""Topic lists, slow readers and the relay once more, every client of theirs with TLS: what they promise holds there too."""

from pathlib import Path

import pytest

from tests.integration.test_direct_mode import *  # noqa: F403
from tests.integration.test_members_leaving import *  # noqa: F403
from tests.integration.test_memory_rules import *  # noqa: F403
from tests.integration.test_output_order import *  # noqa: F403
from tests.integration.test_shared_lists import *  # noqa: F403
from tests.integration.test_slow_readers import *  # noqa: F403
from tests.integration.test_watch_limits import *  # noqa: F403
from tests.support import proxy_under_test
from tests.support.async_client import AsyncClient
from tests.support.proxy_under_test import Stage
from tests.support.tls import PemFiles, client_context, tls_client


@pytest.fixture(autouse=True)
def with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every client of a stage shake hands first."""
    trusting = client_context()

    async def client(stage: Stage, rcvbuf: int | None = None, port: int | None = None) -> AsyncClient:
        assert port is None
        return await tls_client(stage, trusting, rcvbuf)

    monkeypatch.setattr(Stage, "client", client)
    for key, value in PemFiles.write(tmp_path).server_keys.items():
        monkeypatch.setitem(proxy_under_test._DEFAULTS, key, str(value))
