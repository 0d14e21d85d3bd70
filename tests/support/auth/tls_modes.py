"""Run tests of relays without TLS, with TLS towards the client, towards the broker, and both.

A file asks for it by `pytestmark = pytest.mark.usefixtures("tls_mode")`, a test for less by `@pytest.mark.tls_modes`.
Nobody can be told over TLS that one side sends no more: `@pytest.mark.receiver("plain")` gives a test the sides whose
end the other one is told of, `receiver("tls")` those with which the relay ends.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.auth.tls import TlsClient, brokers_with_tls, serve_with_tls
from tests.support.clients.async_client import AsyncClient

MODES: Final = ("plain", "in", "out", "both")
SIDES: Final = ("client", "broker")
# The modes in which what a side sends is received over TLS.
_SEALED: Final = {"client": ("out", "both"), "broker": ("in", "both")}


def give_modes(metafunc: pytest.Metafunc) -> None:
    """Give a test its modes, and its sides if they depend on these."""
    receiver = metafunc.definition.get_closest_marker("receiver")
    if "tls_mode" not in metafunc.fixturenames:
        if receiver is not None:
            metafunc.parametrize("side", SIDES)
        return
    chosen = metafunc.definition.get_closest_marker("tls_modes")
    modes = MODES if chosen is None else chosen.args
    if receiver is None:
        metafunc.parametrize("tls_mode", modes, indirect=True)
        return
    (kind,) = receiver.args
    sides = [(mode, side) for mode in modes for side in SIDES if (mode in _SEALED[side]) == (kind == "tls")]
    metafunc.parametrize(("tls_mode", "side"), sides, indirect=["tls_mode"])


@pytest.fixture
def tls_mode(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all proxies, clients and brokers of a test speak TLS where its mode says so."""
    if request.param in ("in", "both"):
        serve_with_tls(tmp_path, monkeypatch)
    if request.param in ("out", "both"):
        brokers_with_tls(tmp_path, monkeypatch)
    # Many bytes of such tests are no frames: a mere FIN would be a stream that was cut off inside a frame.
    for end in ("fin", "close"):
        monkeypatch.setattr(TlsClient, end, _behind_close_notify(getattr(TlsClient, end)))


def _behind_close_notify(end: Callable[[TlsClient], None]) -> Callable[[TlsClient], None]:
    def ended(client: TlsClient) -> None:
        with suppress(OSError):
            AsyncClient.send_now(client, client.sealer.say_close_notify())
        end(client)

    return ended
