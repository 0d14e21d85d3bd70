"""The relay once more, every client with TLS."""

from pathlib import Path

import pytest

from tests.integration.test_direct_mode import *  # noqa: F403
from tests.support.auth.tls import serve_with_tls

# Nobody can be told over TLS that the other side will send no more without ending his connection.
del test_a_half_close_is_passed_on_and_the_other_direction_goes_on  # noqa: F821
del test_fins_of_both_sides_while_the_proxy_does_not_read_lose_no_byte  # noqa: F821


@pytest.fixture(autouse=True)
def with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with_tls(tmp_path, monkeypatch)
