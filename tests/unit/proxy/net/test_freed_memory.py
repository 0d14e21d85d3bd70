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
from tests.support.loops.loops import run_virtual

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


def noting(trims: list[float], *handshakes: int) -> int:
    """Return how often pages were returned after handshakes in these numbers."""

    async def main() -> None:
        crashes: list[BaseException] = []
        scope = TaskScope(crashes.append)
        freed = FreedMemory(asyncio.get_running_loop(), scope)
        for number in handshakes:
            freed.note(number)
        await asyncio.sleep(10 * CALM_SECONDS)
        assert not crashes

    run_virtual(main())
    return len(trims)


def test_pages_are_returned_once_after_a_crowd(trims: list[float]) -> None:
    assert noting(trims, 1, CROWD, CROWD + 1, CROWD // 2, 3, 2, 1, 0) == 1


def test_pages_stay_while_the_crowd_does(trims: list[float]) -> None:
    assert noting(trims, CROWD, 1, CROWD) == 0


def test_few_handshakes_are_no_crowd(trims: list[float]) -> None:
    assert noting(trims, CROWD - 1, 0) == 0
