"""Who gives a place back for those who wait is found by one look at each place (`SharedPlaces`)."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from limiter.sites import site_of
from proxy.core.addresses import host_network
from proxy.core.log import open_log
from proxy.net.write_watch import WriteLimits
from proxy.web.forward import places as shared
from proxy.web.forward.places import LOOK_SECONDS, SharedPlaces
from proxy.web.forward.uploads import Sample
from tests.support.loops.clock import ManualClock


class Guest:
    """A request that waits for its server, and stays when it is told to leave."""

    uploading = False

    def __init__(self, key: Hashable) -> None:
        self.key = key

    def when_uploaded(self, callback: Callable[[], None]) -> None:
        callback()

    def sample(self, now: float) -> Sample | None:
        return None

    def give_way(self, *, slow: bool) -> None: ...

    def crashed(self, error: Exception) -> None:
        raise error


@pytest.mark.threat("request-places-search")
@pytest.mark.parametrize("address", ["10.0.{0}.1", "2001:db8:{0:x}:1::1"])
@pytest.mark.parametrize("crowd", [100, 400])
async def test_a_look_asks_for_the_site_of_each_place_a_few_times(
    address: str, crowd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def counting(key: Hashable) -> Hashable:
        nonlocal asked
        asked += 1
        return site_of(key)

    clock = ManualClock()
    places = SharedPlaces("places", crowd, clock, lambda: WriteLimits(20.0, 0), open_log("error"))
    guests: list[Any] = [Guest(host_network(address.format(number))) for number in range(2 * crowd)]
    for guest in guests[:crowd]:
        await places.enter(guest, 5.0)
    tasks = [asyncio.get_running_loop().create_task(places.enter(guest, 60.0)) for guest in guests[crowd:]]
    await asyncio.sleep(0)
    monkeypatch.setattr(shared, "site_of", counting)
    clock.advance(3 * LOOK_SECONDS)
    assert places.semaphore.queue_size == crowd
    # Three looks of some questions for each that holds or wants a place. Steps are counted: no clock is a verdict.
    assert 0 < asked <= 3 * 8 * 2 * crowd
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
