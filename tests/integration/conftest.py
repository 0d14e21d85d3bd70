"""Tests here run on uvloop, as the proxy does, and the proxy's clock ticks faster than once a second."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from proxy.app import proxy as app
from proxy.net.spill.disk import DirectoryDisk, DiskRoom
from proxy.web.http import renderings
from tests.support.auth.tls import PemFiles
from tests.support.auth.tls_modes import give_modes, tls_mode
from tests.support.patience import in_time

__all__ = ["tls_mode"]

TICK_SECONDS = 0.02
# Below the timeout of pytest, which ends the worker and all that it could tell.
TEST_SECONDS = 90.0


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    give_modes(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have a test that waits for ever fail where it waits."""
    here = Path(__file__).parent
    for item in items:
        # Pytest shows this hook the items of every directory.
        if not isinstance(item, pytest.Function) or not item.path.is_relative_to(here):
            continue
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(*args: object, **kwargs: object) -> None:
        async with in_time(TEST_SECONDS):
            await test(*args, **kwargs)

    return bounded


@pytest.fixture(autouse=True)
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keep-alive and timeouts act at once; with a fast tick an interval of n seconds is n ticks."""
    monkeypatch.setattr(app, "TICK_SECONDS", TICK_SECONDS)


@pytest.fixture(autouse=True)
def fresh_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have own pages made for each who asks: tests look at metrics right after what they did."""
    monkeypatch.setattr(renderings, "KEEP_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lists go to disk also where the machine's own is nearly full: a tenth of it stays free for others."""
    monkeypatch.setattr(DirectoryDisk, "room", lambda _: DiskRoom(free=1 << 40, total=1 << 40))


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)
