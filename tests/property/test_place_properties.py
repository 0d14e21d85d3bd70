"""Who gives a place back for those who wait: the rule of `SharedPlaces`, which looks at each place once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiter.sites import SiteKey, site_of
from proxy.core.addresses import host_network
from proxy.net.write_watch import WriteLimits
from proxy.web.http import places as shared
from proxy.web.http.places import LOOK_SECONDS, Place, Sample, SharedPlaces
from tests.support.loops.clock import ManualClock

ADDRESSES = [
    *(f"10.0.0.{number}" for number in range(4)),
    *(f"2001:db8:{site:x}:{network:x}::1" for site in range(3) for network in range(3)),
]
KEYS = [*map(host_network, ADDRESSES), "alice"]
FEW = st.lists(st.sampled_from(KEYS), max_size=25)


class Guest:
    """A request that waits for its server, and stays when it is told to leave."""

    uploading = False

    def __init__(self, key: Hashable, told: "list[Guest]") -> None:
        self.key = key
        self.told = told

    def when_uploaded(self, callback: Callable[[], None]) -> None:
        callback()

    def sample(self, now: float) -> Sample | None:
        return None

    def give_way(self, *, slow: bool) -> None:
        assert not slow
        self.told.append(self)

    def crashed(self, error: Exception) -> None:
        raise error


def shared_places(limit: int) -> tuple[SharedPlaces, ManualClock]:
    clock = ManualClock()
    return SharedPlaces("places", limit, clock, lambda: WriteLimits(20.0, 0)), clock


async def taken(places: SharedPlaces, keys: list[str], told: list[Guest]) -> list[Place]:
    return [await places.enter(Guest(key, told), 5.0) for key in keys]


async def waiting(places: SharedPlaces, keys: list[str]) -> list[asyncio.Task[Place]]:
    tasks = [asyncio.get_running_loop().create_task(places.enter(Guest(key, []), 60.0)) for key in keys]
    await asyncio.sleep(0)
    return tasks


async def left(tasks: list[asyncio.Task[Place]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# --- the rule, as plainly as it can be written ----------------------------------------------------


def by_site(counts: Counter[Hashable]) -> Counter[Hashable]:
    sites: Counter[Hashable] = Counter()
    for key, count in counts.items():
        sites[site_of(key)] += count
    return sites


def share_of(limit: int, held: Counter[Hashable], wanted: Counter[Hashable]) -> int:
    return max(1, limit // max(1, len(set(held) | set(wanted))))


def missing(share: int, held: Counter[Hashable], wanted: Counter[Hashable]) -> int:
    return sum(min(count, max(0, share - held[key])) for key, count in wanted.items())


def of_site(counts: Counter[Hashable], site: Hashable) -> Counter[Hashable]:
    return Counter({key: count for key, count in counts.items() if site_of(key) == site})


def above_share(staying: list[Place], wanted: Counter[Hashable], limit: int, now: float) -> list[Place]:
    """Give who leaves: for each site, and then for each key of a site that waits, by a look at all places."""
    held = Counter(place.guest.key for place in staying)
    found: list[Place] = []
    sites, sites_wanted = by_site(held), by_site(wanted)
    share = share_of(limit, sites, sites_wanted)
    needed = missing(share, sites, sites_wanted)
    for site, count in sites.most_common():
        longest = [place for place in staying if site_of(place.guest.key) == site and place.may_leave(now)]
        longest.sort(key=lambda place: -held[place.guest.key])
        leave = longest[: max(0, min(count - share, needed))]
        needed -= len(leave)
        found += leave
    # What one site gives to its own keys is nothing for the keys of another.
    given = list(found)
    for site in dict.fromkeys(key.site for key in wanted if isinstance(key, SiteKey)):
        inside, inside_wanted = of_site(held, site), of_site(wanted, site)
        share_inside = share_of(max(share, sites[site]), inside, inside_wanted)
        needed = missing(share_inside, inside, inside_wanted) - len(given)
        for key, count in inside.most_common() if needed > 0 else ():
            longest = [place for place in staying if place.guest.key == key and place.may_leave(now)]
            for place in longest[: max(0, min(count - share_inside, needed))]:
                needed -= 1
                if place not in given:
                    found.append(place)
    return found


# --- tests ----------------------------------------------------------------------------------------


@pytest.mark.threat("request-places-search")
@given(old=FEW, new=FEW, wanted=FEW)
def test_those_above_their_share_leave_by_the_rule(old: list[str], new: list[str], wanted: list[str]) -> None:
    async def main() -> None:
        (places, clock), told = shared_places(len(old) + len(new)), list[Guest]()
        held = await taken(places, old, told)
        clock.advance(1.5)
        held += await taken(places, new, told)
        tasks = await waiting(places, wanted)
        clock.advance(LOOK_SECONDS)
        expected = above_share(held, Counter(wanted), places.semaphore.limit, clock.time())
        assert told == [place.guest for place in expected]
        await left(tasks)

    if old or new:
        asyncio.run(main())


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

    places, clock = shared_places(crowd)
    hosts = [host_network(address.format(number)) for number in range(2 * crowd)]
    await taken(places, hosts[:crowd], [])
    tasks = await waiting(places, hosts[crowd:])
    monkeypatch.setattr(shared, "site_of", counting)
    clock.advance(3 * LOOK_SECONDS)
    assert places.semaphore.queue_size == crowd
    # Three looks of some questions for each that holds or wants a place.
    assert 0 < asked <= 3 * 8 * 2 * crowd
    await left(tasks)
