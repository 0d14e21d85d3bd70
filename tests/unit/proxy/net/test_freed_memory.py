"""What OpenSSL leaves behind after many half-done handshakes goes back to the system."""

import asyncio
import ssl
from contextlib import suppress

import pytest

from proxy.core.process_memory import resident_bytes, return_free_pages
from proxy.core.tasks import TaskScope
from proxy.net.tls import freed_memory
from proxy.net.tls.freed_memory import CALM_SECONDS, CROWD, FreedMemory
from tests.support.auth.tls import Sealer, client_context, server_context
from tests.support.loops.loops import virtual

HANDSHAKES = 1_000


def half_done(context: ssl.SSLContext, hello: bytes, shared: Sealer) -> ssl.SSLObject:
    begun = context.wrap_bio(shared.incoming, shared.outgoing, server_side=True)
    shared.incoming.write(hello)
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    shared.outgoing.read()
    return begun


@pytest.mark.threat("handshake-memory-left")
def test_memory_of_half_done_handshakes_goes_back_to_the_system() -> None:
    context, client = server_context(), Sealer(client_context())
    with suppress(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello, shared = client.outgoing.read(), Sealer(client_context())
    before = resident_bytes()
    begun = [half_done(context, hello, shared) for _ in range(HANDSHAKES)]
    held = resident_bytes()
    begun.clear()
    return_free_pages()
    after = resident_bytes()
    assert before is not None
    assert held is not None
    assert after is not None
    assert after - before < (held - before) / 2


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    called: list[float] = []

    async def in_thread(function: object, name: str, seconds: float) -> None:
        assert function is return_free_pages
        called.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(freed_memory, "in_thread", in_thread)
    return called


@pytest.mark.parametrize(
    ("handshakes", "returned"),
    [
        pytest.param((1, CROWD, CROWD + 1, CROWD // 2, 3, 2, 1, 0), 1, id="after a crowd, once"),
        pytest.param((CROWD, 1, CROWD), 0, id="the crowd is there"),
        pytest.param((CROWD - 1, 0), 0, id="no crowd"),
    ],
)
@virtual
async def test_pages_are_returned_after_a_crowd(trims: list[float], handshakes: tuple[int, ...], returned: int) -> None:
    crashes: list[BaseException] = []
    freed = FreedMemory(asyncio.get_running_loop(), TaskScope(crashes.append))
    for number in handshakes:
        freed.note(number)
    await asyncio.sleep(10 * CALM_SECONDS)
    assert (len(trims), crashes) == (returned, [])
