"""The brokers' own list in virtual time: one shared question, at most one a second, and an end of every wait."""

import asyncio
import io
from collections.abc import Awaitable, Callable

import pytest

from proxy.brokers.broker_list import (
    LIST_SECONDS,
    PAUSE_SECONDS,
    REFUSED_SECONDS,
    WAIT_SECONDS,
    BrokerList,
    ListRefused,
    ListUnavailable,
)
from proxy.core.log import open_log
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN
from proxy.core.tasks import TaskScope
from tests.support.loops.loops import most_in_an_iteration, run_virtual


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
        self.listed = BrokerList(self.loop, self.ask, log, self._crashed, LoopBudget(self.loop, self.loop.time))

    async def ask(self) -> frozenset[str]:
        self.asked.append(self.loop.time())
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return frozenset(self.hosts)

    @staticmethod
    def _crashed(error: BaseException) -> None:
        raise error


def with_registry(*hosts: str) -> Callable[[Callable[[Registry], Awaitable[None]]], None]:
    def run(body: Callable[[Registry], Awaitable[None]]) -> None:
        async def main() -> None:
            registry = Registry(*hosts)
            registry.listed.start()
            await body(registry)
            await registry.listed.close()

        run_virtual(main())

    return run


def test_the_list_is_asked_for_at_the_start_and_serves_who_comes_meanwhile() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        assert "broker-1" not in registry.listed
        assert await registry.listed.learn("BROKER-1")
        assert "Broker-1" in registry.listed
        assert len(registry.asked) == 1


def test_a_miss_is_answered_by_a_question_that_began_after_it() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        await asyncio.sleep(0.05)
        # The first question is under way, and may have been answered before the broker came.
        registry.loop.call_later(0.2, registry.hosts.add, "broker-2")
        assert await registry.listed.learn("broker-2")
        assert len(registry.asked) == 2


@pytest.mark.threat("endless-unknown-hosts")
def test_a_hundred_strangers_cost_one_question_a_second() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        for _ in range(5):
            answers = await asyncio.gather(*(registry.listed.learn(f"foreign-{number}") for number in range(100)))
            assert not any(answers)
        gaps = [later - earlier for earlier, later in zip(registry.asked, registry.asked[1:], strict=False)]
        assert min(gaps) >= PAUSE_SECONDS - 1e-6
        assert len(registry.asked) == 5


def test_who_leaves_does_not_end_the_question_of_others() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        answers: list[bool] = []

        async def client() -> None:
            answers.append(await registry.listed.learn("broker-1"))

        scope = TaskScope(registry._crashed)
        leave = scope.start(client())
        scope.start(client())
        await asyncio.sleep(0.05)
        leave()
        await scope.emptied()
        assert answers == [True]
        assert len(registry.asked) == 1


def test_a_service_that_hangs_ends_the_wait_in_time() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        registry.seconds = 1000.0
        began = registry.loop.time()
        assert not await registry.listed.learn("broker-1")
        assert registry.loop.time() - began <= WAIT_SECONDS + 1e-6


def test_a_role_that_is_refused_is_told_once_and_asks_again_much_later() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        registry.error = ListRefused("got status 403")
        for _ in range(3):
            for _ in range(10):
                assert not await registry.listed.learn("broker-1")
            assert registry.listed.off
            await asyncio.sleep(REFUSED_SECONDS)
        assert len(registry.asked) == 3
        assert registry.log.getvalue().count(b"may not be read") == 1
        registry.error = None
        assert await registry.listed.learn("broker-1")


def test_a_service_that_fails_keeps_the_last_list_for_a_time() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        assert await registry.listed.learn("broker-1")
        registry.error = ListUnavailable("got status 500")
        assert not await registry.listed.learn("broker-2")
        assert await registry.listed.learn("broker-1")
        await asyncio.sleep(LIST_SECONDS)
        assert not await registry.listed.learn("broker-1")


def test_after_the_close_nobody_waits_and_nobody_is_asked() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        answers: list[bool] = []

        async def client() -> None:
            answers.append(await registry.listed.learn("broker-2"))

        scope = TaskScope(registry._crashed)
        scope.start(client())
        await asyncio.sleep(0.05)
        await registry.listed.close()
        await scope.emptied()
        assert answers == [False]
        assert not await registry.listed.learn("broker-1")
        assert len(registry.asked) == 1


@pytest.mark.threat("waiters-in-one-step")
def test_those_who_wait_for_a_list_go_on_a_few_in_an_iteration() -> None:
    @with_registry("broker-1")
    async def _(registry: Registry) -> None:
        registry.seconds = 0.0
        learned = list[bool]()

        async def learn() -> None:
            learned.append(await registry.listed.learn("broker-1"))

        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(learn())
            assert await most_in_an_iteration(lambda: len(learned), 200) <= TASKS_PER_TURN
        assert all(learned)
