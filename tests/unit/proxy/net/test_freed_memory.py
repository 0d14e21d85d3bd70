"""What OpenSSL leaves behind after many half-done handshakes goes back to the system."""

import asyncio

import pytest

from proxy.core.process_memory import return_free_pages
from proxy.core.tasks import TaskScope
from proxy.net.tls import freed_memory
from proxy.net.tls.freed_memory import CALM_SECONDS, CROWD, FreedMemory
from tests.support.loops.loops import virtual


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
