"""Names that clients make up take turns by the networks of the clients; too many of one network are its own loss."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from proxy.brokers.name_queries import MOST_WAITING
from proxy.brokers.resolver import CachingResolver
from proxy.core.addresses import host_network
from proxy.core.errors import TargetRefused
from proxy.core.loop_budget import LoopBudget
from tests.support.loops.loops import run_virtual

AT_ONCE = 2


class Town:
    """A resolver whose queries hang until `gate` is open, and the askers of names."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.refused: dict[str, str] = {}
        self._group = group
        self._crashes: list[BaseException] = []
        loop = asyncio.get_running_loop()
        budget = LoopBudget(loop, loop.time)
        self.names = CachingResolver(loop, 30.0, AT_ONCE, self._crashes.append, budget, self._ask)

    async def asks(self, network: str, *names: str) -> list[asyncio.Task[None]]:
        """Begin to ask for names as clients of a network."""
        begun = [self._group.create_task(self._resolve(network, name)) for name in names]
        await asyncio.sleep(0.001)
        return begun

    async def close(self) -> None:
        self.gate.set()
        await asyncio.sleep(1)
        await self.names.close()
        assert not self._crashes

    async def _resolve(self, network: str, name: str) -> None:
        try:
            await self.names.resolve(name, 6650, network=network)
        except TargetRefused as refusal:
            self.refused[f"{network} {name}"] = str(refusal)

    async def _ask(self, name: str) -> list[str]:
        self.asked.append(name)
        await self.gate.wait()
        return ["192.0.2.1"]


def in_town(body: Callable[[Town], Awaitable[None]]) -> None:
    async def main() -> None:
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                town = Town(group)
                await body(town)
                await town.close()

    run_virtual(main())


def test_one_network_leaves_a_slot_to_others() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("many", *(f"name-{number}" for number in range(20)))
        assert town.asked == ["name-0"]
        await town.asks("one", "broker")
        assert town.asked == ["name-0", "broker"]


def test_the_proxy_s_own_questions_may_have_every_slot() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("", "name-0", "name-1", "name-2")
        assert town.asked == ["name-0", "name-1"]


def test_networks_take_turns_however_many_names_one_asks_for() -> None:
    @in_town
    async def _(town: Town) -> None:
        for network in ("many", "more"):
            await town.asks(network, *(f"{network}-{number}" for number in range(10)))
        await town.asks("one", "one-0")
        town.gate.set()
        await asyncio.sleep(1)
        assert town.asked.index("one-0") <= 4


@pytest.mark.threat("names-delay-other-clients")
def test_a_name_that_another_network_asked_for_first_has_the_turn_of_each_that_asks() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("many", *(f"name-{number}" for number in range(20)), "broker")
        await town.asks("one", "broker")
        assert town.asked == ["name-0", "broker"]


@pytest.mark.threat("names-delay-other-clients")
def test_when_too_many_wait_the_newest_of_the_network_with_most_makes_room() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("two", "busy-0")
        await town.asks("many", *(f"name-{number}" for number in range(MOST_WAITING + 1)))
        assert not town.refused
        await town.asks("many", "one-more")
        assert town.refused == {"many one-more": "too many other names wait to be resolved"}
        town.refused.clear()
        await town.asks("one", "broker")
        newest = f"name-{MOST_WAITING}"
        assert town.refused == {
            f"many {newest}": f"host '{newest}' is not resolved: too many names of its clients' network wait"
        }
        town.refused.clear()
        town.gate.set()
        await asyncio.sleep(1)
        assert "broker" in town.asked
        assert newest not in town.asked
        assert not town.refused


@pytest.mark.threat("many-networks-one-customer")
def test_the_networks_of_a_customer_have_one_turn_for_names() -> None:
    @in_town
    async def _(town: Town) -> None:
        for number in range(20):
            await town.asks(host_network(f"2001:db8:1:{number:x}::1"), f"name-{number}")
        assert town.asked == ["name-0"]
        await town.asks(host_network("2001:db8:2::1"), "one-0", "one-1")
        town.gate.set()
        await asyncio.sleep(1)
        assert town.asked.index("one-0") <= 1
        assert town.asked.index("one-1") <= 4


def test_when_too_many_wait_a_name_of_the_customer_with_most_makes_room() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("two", "busy-0")
        for number in range(MOST_WAITING + 1):
            await town.asks(host_network(f"2001:db8:1:{number:x}::1"), f"name-{number}")
        assert not town.refused
        await town.asks(host_network("2001:db8:1:ffff::1"), "one-more")
        assert [refused.split()[1] for refused in town.refused] == ["one-more"]
        town.refused.clear()
        await town.asks(host_network("2001:db8:2::1"), "broker")
        assert len(town.refused) == 1
        assert "name-" in next(iter(town.refused))


def test_a_name_that_leaves_the_line_of_one_network_stays_in_that_of_another() -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("one", "busy-0")
        names = [f"name-{number}" for number in range(MOST_WAITING - 1)]
        await town.asks("many", *names, "shared")
        await town.asks("two", "shared")
        await town.asks("three", "broker")
        assert list(town.refused) == ["many shared"]
        town.gate.set()
        await asyncio.sleep(1)
        assert "shared" in town.asked
        assert list(town.refused) == ["many shared"]


@pytest.mark.parametrize("leavers", [2, 3])
def test_a_name_is_asked_for_while_a_client_of_any_network_waits(leavers: int) -> None:
    @in_town
    async def _(town: Town) -> None:
        await town.asks("one", "busy-0")
        await town.asks("many", "busy-1")
        clients = [*await town.asks("many", "left", "left"), *await town.asks("one", "left")]
        for client in clients[:leavers]:
            client.cancel()
        await asyncio.sleep(0.001)
        town.gate.set()
        await asyncio.sleep(1)
        assert ("left" in town.asked) is (leavers < len(clients))
