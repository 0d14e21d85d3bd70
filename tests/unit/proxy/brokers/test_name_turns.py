"""Names that clients make up take turns by the networks of the clients; too many of one network are its own loss."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.brokers.name_queries import MOST_WAITING
from proxy.core.addresses import host_network
from proxy.core.errors import TargetRefused
from proxy.core.tasks import TaskScope
from tests.support.brokers.played import crash
from tests.support.loops.loops import virtually
from tests.unit.proxy.brokers.test_resolver import Resolver


class Town(Resolver):
    """A resolver whose queries hang until `gate` is open, and the askers of names."""

    def __init__(self) -> None:
        super().__init__()
        self.gate.clear()
        self.refused: dict[str, str] = {}
        self._tasks = TaskScope(crash)

    async def asks(self, network: str, *names: str) -> None:
        """Begin to ask for names as clients of a network."""
        for name in names:
            self._tasks.start(self._resolve(network, name))
        await asyncio.sleep(0.001)

    async def _resolve(self, network: str, name: str) -> None:
        try:
            await self.names.resolve(name, 6650, network=network)
        except TargetRefused as refusal:
            self.refused[f"{network} {name}"] = str(refusal)


@asynccontextmanager
async def town_of() -> AsyncIterator[Town]:
    town = Town()
    yield town
    town.gate.set()
    await asyncio.sleep(1)
    await town.names.close()


@virtually(town_of)
async def test_one_network_leaves_a_slot_to_others(town: Town) -> None:
    await town.asks("many", *(f"name-{number}" for number in range(20)))
    assert town.asked == ["name-0"]
    await town.asks("one", "broker")
    assert town.asked == ["name-0", "broker"]


@virtually(town_of)
async def test_networks_take_turns_however_many_names_one_asks_for(town: Town) -> None:
    for network in ("many", "more"):
        await town.asks(network, *(f"{network}-{number}" for number in range(10)))
    await town.asks("one", "one-0")
    town.gate.set()
    await asyncio.sleep(1)
    assert town.asked.index("one-0") <= 4


@pytest.mark.threat("names-delay-other-clients")
@virtually(town_of)
async def test_a_name_that_another_network_asked_for_first_has_the_turn_of_each_that_asks(town: Town) -> None:
    await town.asks("many", *(f"name-{number}" for number in range(20)), "broker")
    await town.asks("one", "broker")
    assert town.asked == ["name-0", "broker"]


@pytest.mark.threat("names-delay-other-clients")
@virtually(town_of)
async def test_when_too_many_wait_the_newest_of_the_network_with_most_makes_room(town: Town) -> None:
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
@virtually(town_of)
async def test_the_networks_of_a_customer_have_one_turn_for_names(town: Town) -> None:
    for number in range(20):
        await town.asks(host_network(f"2001:db8:1:{number:x}::1"), f"name-{number}")
    assert town.asked == ["name-0"]
    await town.asks(host_network("2001:db8:2::1"), "one-0", "one-1")
    town.gate.set()
    await asyncio.sleep(1)
    assert town.asked.index("one-0") <= 1
    assert town.asked.index("one-1") <= 4
