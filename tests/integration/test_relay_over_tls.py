"""The relay once more, with TLS towards the client, the broker, or both."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration import test_direct_mode
from tests.integration.test_direct_mode import *  # noqa: F403
from tests.support.auth.tls import TlsClient, brokers_with_tls, serve_with_tls
from tests.support.clients.async_client import AsyncClient

# Nobody can be told over TLS that the other side will send no more without ending his connection.
del test_a_half_close_is_passed_on_and_the_other_direction_goes_on  # noqa: F821
del test_fins_of_both_sides_while_the_proxy_does_not_read_lose_no_byte  # noqa: F821


@pytest.fixture(autouse=True, params=["in", "out", "both"])
def with_tls(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "out":
        serve_with_tls(tmp_path, monkeypatch)
    if request.param != "in":
        brokers_with_tls(tmp_path, monkeypatch, test_direct_mode)
    # The bytes of these tests are no frames: a mere FIN would be a stream that was cut off inside a frame.
    monkeypatch.setattr(TlsClient, "fin", after_close_notify(TlsClient.fin))
    monkeypatch.setattr(TlsClient, "close", after_close_notify(TlsClient.close))


def after_close_notify(end: Callable[[TlsClient], None]) -> Callable[[TlsClient], None]:
    def ended(client: TlsClient) -> None:
        with suppress(OSError):
            AsyncClient.send_now(client, client.sealer.say_close_notify())
        end(client)

    return ended
