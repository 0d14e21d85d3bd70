"""Dials to hosts that clients make up: few at a time, in turns by network, and none that others wait for lasts."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from limiter.errors import PermitAcquireError
from proxy.core.addresses import host_network
from proxy.net.dial_places import LEAST_DIAL_SECONDS, DialPlaces, most_dials
from tests.support.loops.loops import virtual

CROWD, OTHER, THIRD = "192.0.2.1", "192.0.2.2", "192.0.2.3"
TIMEOUT = 10.0


class Street:
    """Dials to hosts that never answer; each lasts for `TIMEOUT`, or until others wait."""

    def __init__(self, most: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.places = DialPlaces(most, self.loop)
        self.began = self.loop.time()
        self.tasks: list[asyncio.Task[None]] = []
        # By network: when its dials began and ended.
        self.began_at: dict[str, list[float]] = {}
        self.ended_at: dict[str, list[float]] = {}

    async def dials(self, group: asyncio.TaskGroup, network: str, number: int) -> list["asyncio.Task[None]"]:
        tasks = [group.create_task(self._dial(network)) for _ in range(number)]
        self.tasks += tasks
        for _ in range(5):
            await asyncio.sleep(0)
        return tasks

    def stop(self) -> None:
        for dial in self.tasks:
            dial.cancel()

    def held(self, network: str) -> int:
        return len(self.began_at[network]) - len(self.ended_at.get(network, ()))

    async def _dial(self, network: str) -> None:
        with await self.places.enter(network, 3 * TIMEOUT) as place:
            self.began_at.setdefault(network, []).append(self._now())
            try:
                async with asyncio.timeout(TIMEOUT) as clock:
                    place.ends_by(clock.reschedule)
                    await self.loop.create_future()
            except TimeoutError:
                self.ended_at.setdefault(network, []).append(self._now())

    def _now(self) -> float:
        return round(self.loop.time() - self.began, 2)


@asynccontextmanager
async def on_street(most: int = 4) -> AsyncIterator[tuple[Street, asyncio.TaskGroup]]:
    street = Street(most)
    async with asyncio.TaskGroup() as group:
        yield street, group
    assert street.places.states() == {"opening": 0, "waiting": 0}


@virtual
async def test_a_network_alone_has_all_places_and_its_dials_last() -> None:
    async with on_street() as (street, group):
        await street.dials(group, CROWD, 8)
        assert street.places.states() == {"opening": 4, "waiting": 4}
        await asyncio.sleep(TIMEOUT - 0.1)
        assert street.ended_at == {}
        assert street.places.given_up == 0
        await asyncio.sleep(0.2)
        assert street.ended_at == {CROWD: [TIMEOUT] * 4}


@virtual
async def test_the_oldest_dial_of_the_network_with_most_ends_for_another_network() -> None:
    async with on_street() as (street, group):
        await street.dials(group, CROWD, 3)
        await asyncio.sleep(5.0)
        await street.dials(group, CROWD, 20)
        await street.dials(group, OTHER, 1)
        await asyncio.sleep(0.01)
        # The oldest two had their least time long ago: one turn is the crowd's own, the next the other network's.
        assert street.ended_at == {CROWD: [5.0, 5.0]}
        assert street.began_at[OTHER] == [5.0]
        street.stop()


@pytest.mark.threat("dials-keep-others-out")
@virtual
async def test_networks_have_equal_shares_while_all_want_more() -> None:
    async with on_street(most=8) as (street, group):
        await street.dials(group, CROWD, 9)
        await street.dials(group, OTHER, 9)
        await asyncio.sleep(LEAST_DIAL_SECONDS + 0.1)
        assert street.began_at[OTHER] == [LEAST_DIAL_SECONDS] * 4
        # A third network has its share soon.
        await street.dials(group, THIRD, 9)
        await asyncio.sleep(2 * LEAST_DIAL_SECONDS)
        assert all(2 <= street.held(network) <= 3 for network in (CROWD, OTHER, THIRD))
        street.stop()


@pytest.mark.threat("many-networks-one-customer")
@virtual
async def test_all_networks_of_a_customer_have_one_share() -> None:
    async with on_street(most=8) as (street, group):
        for number in range(30):
            await street.dials(group, host_network(f"2001:db8:1:{number:x}::1"), 1)
        await street.dials(group, OTHER, 9)
        await asyncio.sleep(LEAST_DIAL_SECONDS + 0.1)
        assert street.began_at[OTHER] == [LEAST_DIAL_SECONDS] * 4
        street.stop()


@pytest.mark.threat("neighbours-in-a-site")
@virtual
async def test_a_network_gives_its_customer_s_others_their_share() -> None:
    async with on_street() as (street, group):
        one, other = (host_network(f"2001:db8:1:{number}::1") for number in (1, 2))
        await street.dials(group, one, 20)
        await street.dials(group, other, 2)
        await asyncio.sleep(LEAST_DIAL_SECONDS + 0.1)
        assert street.began_at[other] == [LEAST_DIAL_SECONDS] * 2
        street.stop()


@virtual
async def test_who_finds_no_place_in_time_is_told_so() -> None:
    async with on_street(most=1) as (street, group):
        (dial,) = await street.dials(group, CROWD, 1)
        with pytest.raises(PermitAcquireError):
            await street.places.enter(CROWD, 1.0)
        dial.cancel()


@pytest.mark.parametrize(
    ("soft", "most"), [(65_536, 2048), (4096, 170), (1024, 42), (16, 1), (resource.RLIM_INFINITY, 2048)]
)
def test_dials_take_a_part_of_the_descriptors(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_dials() == most
