"""The brokers' own list in virtual time: one shared question, at most one a second, and an end of every wait."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.brokers.admin_port import AdminRefused, AdminUnavailable
from proxy.brokers.broker_list import (
    LIST_SECONDS,
    PAUSE_SECONDS,
    REFUSED_SECONDS,
    WAIT_SECONDS,
    BrokerList,
)
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from tests.support.brokers.played import crash
from tests.support.loops.loops import virtually


class Registry:
    """Brokers that answer with `hosts`, after `seconds`, or with an error."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = set(hosts)
        self.seconds = 0.1
        self.error: Exception | None = None
        self.asked: list[float] = []
        self.log = io.BytesIO()
        self.loop = asyncio.get_running_loop()
        log = open_log("info", "json", self.log)
        self.listed = BrokerList(self.loop, self.ask, log, crash, LoopBudget(self.loop, self.loop.time))

    async def ask(self) -> frozenset[str]:
        self.asked.append(self.loop.time())
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return frozenset(self.hosts)


@asynccontextmanager
async def registry_of() -> AsyncIterator[Registry]:
    made = Registry("broker-1")
    made.listed.start()
    yield made
    await made.listed.close()


@virtually(registry_of)
async def test_the_list_is_asked_for_at_the_start_and_serves_who_comes_meanwhile(registry: Registry) -> None:
    assert "broker-1" not in registry.listed
    leaves = registry.loop.create_task(registry.listed.learn("broker-1"))
    await asyncio.sleep(0.05)
    leaves.cancel()
    assert await registry.listed.learn("BROKER-1")
    assert "Broker-1" in registry.listed
    assert len(registry.asked) == 1


@virtually(registry_of)
async def test_a_miss_is_answered_by_a_question_that_began_after_it(registry: Registry) -> None:
    await asyncio.sleep(0.05)
    # The first question is under way, and may have been answered before the broker came.
    registry.loop.call_later(0.2, registry.hosts.add, "broker-2")
    assert await registry.listed.learn("broker-2")
    assert len(registry.asked) == 2


@pytest.mark.threat("endless-unknown-hosts")
@virtually(registry_of)
async def test_a_hundred_strangers_cost_one_question_a_second(registry: Registry) -> None:
    for _ in range(5):
        answers = await asyncio.gather(*(registry.listed.learn(f"foreign-{number}") for number in range(100)))
        assert not any(answers)
    gaps = [later - earlier for earlier, later in zip(registry.asked, registry.asked[1:], strict=False)]
    assert min(gaps) >= PAUSE_SECONDS - 1e-6
    assert len(registry.asked) == 5


@virtually(registry_of)
async def test_a_service_that_hangs_ends_the_wait_in_time(registry: Registry) -> None:
    registry.seconds = 1000.0
    began = registry.loop.time()
    assert not await registry.listed.learn("broker-1")
    assert registry.loop.time() - began <= WAIT_SECONDS + 1e-6


@virtually(registry_of)
async def test_a_role_that_is_refused_is_told_once_and_asks_again_much_later(registry: Registry) -> None:
    registry.error = AdminRefused("got status 403")
    for _ in range(3):
        for _ in range(10):
            assert not await registry.listed.learn("broker-1")
        assert registry.listed.off
        await asyncio.sleep(REFUSED_SECONDS)
    assert len(registry.asked) == 3
    assert registry.log.getvalue().count(b"may not be read") == 1
    registry.error = None
    assert await registry.listed.learn("broker-1")


@virtually(registry_of)
async def test_a_service_that_fails_keeps_the_last_list_for_a_time(registry: Registry) -> None:
    assert await registry.listed.learn("broker-1")
    registry.error = AdminUnavailable("got status 500")
    assert not await registry.listed.learn("broker-2")
    assert await registry.listed.learn("broker-1")
    await asyncio.sleep(LIST_SECONDS)
    assert not await registry.listed.learn("broker-1")


@virtually(registry_of)
async def test_after_the_close_nobody_waits_and_nobody_is_asked(registry: Registry) -> None:
    waits = registry.loop.create_task(registry.listed.learn("broker-2"))
    await asyncio.sleep(0.05)
    await registry.listed.close()
    assert not await waits
    assert not await registry.listed.learn("broker-1")
    assert len(registry.asked) == 1
