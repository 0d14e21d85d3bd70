"""However many connections have sent requests, an iteration of the loop answers a few, in turns by address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.core.loop_budget import ITERATION_SECONDS, LoopBudget
from proxy.web.server import REQUEST_SECONDS, Site
from tests.support.loops.loops import run_on
from tests.support.web.web_parts import Running, running

CONNECTIONS = 60
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@asynccontextmanager
async def counted(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, list[int]]]:
    """Serve with a clock by which each answer takes its usual time; give the answers of each iteration of the loop."""
    now, iterations = 0.0, [0]
    usual = Site._logged

    async def slow(self: Site, request: object) -> object:
        nonlocal now
        now += REQUEST_SECONDS
        iterations[-1] += 1
        return await usual(self, request)  # type: ignore[arg-type]

    async def watch() -> None:
        while True:
            await asyncio.sleep(0)
            iterations.append(0)

    monkeypatch.setattr(Site, "_logged", slow)
    async with running() as at:
        assert at.port._site is not None
        at.port._site._loop_budget = LoopBudget(asyncio.get_running_loop(), lambda: now)
        watching = asyncio.get_running_loop().create_task(watch())
        yield at, iterations
        watching.cancel()


def test_an_iteration_answers_a_few_of_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with counted(monkeypatch) as (at, iterations):
            answers = await asyncio.gather(*(at.raw(REQUEST * 3 + LAST) for _ in range(CONNECTIONS)))
            assert all(answer.count(b"HTTP/1.1 200 ") == 4 for answer in answers)
            assert sum(iterations) == 4 * CONNECTIONS
            # Those who got a turn work in the next iteration, beside a first request.
            assert max(iterations) <= 2 * round(ITERATION_SECONDS / REQUEST_SECONDS) + 2

    run_on(asyncio.new_event_loop, main())
