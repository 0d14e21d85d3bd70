"""Keys of a site have one turn together among other keys, and turns of their own inside the site."""

import asyncio
import random

import pytest

from limiter.permit import Permit
from limiter.sites import SiteKey, site_of
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle


def network(site: str, number: int) -> SiteKey:
    return SiteKey(f"{site}{number}", site)


class Line:
    """Acquires of one place, each served in its turn."""

    def __init__(self) -> None:
        self.limiter = semaphore(1, ManualClock(), share_by_key=True)
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.first = self.limiter.try_acquire(1, key="first")

    async def ask(self, *keys: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.get_running_loop().create_task(self._one(key)) for key in keys]
        self.tasks += tasks
        await settle()
        return tasks

    async def end(self) -> list[str]:
        assert isinstance(self.first, Permit)
        self.first.release()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        assert books_are_zero(self.limiter)
        return self.served

    async def _one(self, key: str) -> None:
        with await self.limiter.acquire(1, key=key):
            self.served.append(key)
            await asyncio.sleep(0)


@pytest.mark.threat("many-networks-one-customer")
async def test_a_thousand_networks_of_a_site_are_one_key_to_others() -> None:
    line = Line()
    await line.ask(*(network("crowd", number) for number in range(1000)))
    await line.ask("other", "other", "other")
    served = await line.end()
    assert [number for number, key in enumerate(served) if key == "other"] == [1, 3, 5]


@pytest.mark.threat("neighbours-in-a-site")
async def test_a_network_with_many_waiters_delays_its_neighbours_by_one_a_turn() -> None:
    line = Line()
    many, few = network("site", 1), network("site", 2)
    await line.ask(*[many] * 100)
    await line.ask(few, few)
    assert (await line.end())[:5] == [many, few, many, few, many]


async def test_whoever_leaves_the_line_the_others_keep_their_turns() -> None:
    order = random.Random(7)
    for _ in range(50):
        line = Line()
        keys = [network("site", order.randrange(4)) for _ in range(40)]
        tasks = await line.ask(*keys)
        gone = order.sample(range(40), 25)
        for number in gone[:15]:
            tasks[number].cancel()
        await settle()
        late = [network("site", order.randrange(6)) for _ in range(10)]
        await line.ask(*late)
        for number in gone[15:]:
            tasks[number].cancel()
        served = await line.end()
        assert sorted(served) == sorted([key for number, key in enumerate(keys) if number not in gone] + late)


async def test_turns_of_a_site_leave_no_trace() -> None:
    line = Line()
    tasks = await line.ask(*(network("site", number % 3) for number in range(9)))
    queue = line.limiter._fair_queue
    assert queue is not None
    turns = queue._key_queues["site"]._turns
    assert turns is not None
    for task in tasks:
        task.cancel()
    await settle()
    assert not any((turns._last_in, turns._turn_of, turns._count_of, queue._key_queues))
    await line.end()


def test_a_plain_key_is_its_own_site() -> None:
    assert [site_of(key) for key in ("key", None, 5, network("site", 1))] == ["key", None, 5, "site"]
    assert network("site", 1) == "site1"
