"""Share places among requests: in turns by key, and taken back for those who wait.

Rules: keys (principals, or addresses without one) wait in turns, and the requests of a key in the order of their
arrival. A key has no limit of its own: behind a balancer or NAT all clients may have the same address. While requests
wait, a look once a second ends as many others as wait, and no more:
- first requests whose clients have taken or sent less than the least rate since the last look, those of the key with
  most places first;
- then, for keys below their share, the longest requests of keys above their share, and none below two seconds. Networks
  of IPv6 share what their site (/48) has.

A client sends a body as slowly as it likes, and is judged after a second at the earliest. So uploads, which are the
requests whose bodies have not come to their ends, hold at most three quarters of the places, and wait in a line of
their own by the same rules. A request without a body, or with one that is there, waits for no upload.

A client takes a topic list as slowly as it likes, too. So lists hold at most seven eighths of the places, and wait in a
line of their own. An eighth of what they may hold is kept for keys that hold none of it: a list of such a key waits for
no list of another, while there are fewer keys than places.
No I/O, no clock of its own.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Self

from limiter.clock import Clock, Timer
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from limiter.sites import SiteKey, site_of
from proxy.core.log import Logger
from proxy.net.write_watch import WriteLimits
from proxy.web.forward.uploads import Sample

if TYPE_CHECKING:
    from proxy.web.forward.visits import Visit

LOOK_SECONDS: Final = 1.0
# Timers may come a little early.
_A_LOOK: Final = 0.9 * LOOK_SECONDS
# Requests usually end in less, so that places of a busy key become free by themselves.
KEPT_SECONDS: Final = 2.0
# Places that uploads leave to other requests: one of so many; the same for lists.
LEFT_OF: Final = 4
LEFT_OF_LISTS: Final = 8
# Places of lists that are kept for keys which hold none: one of so many.
_KEPT_OF: Final = 8
# Guests looked at in one turn of the loop: a system call each, about 2 ms together.
GUESTS_A_TURN: Final = 250
# Waiters looked at for their keys; a look for a second of them comes a second later.
_MOST_WAITERS: Final = 512


class Place:
    """A place that a guest holds until `release`; a second release does nothing."""

    __slots__ = ("_permits", "_places", "guest", "leaves_by", "look", "sample", "since")

    def __init__(self, places: "SharedPlaces", guest: "Visit", permits: tuple[Permit, ...], since: float) -> None:
        self._places = places
        # The permit of an upload is released when the whole body has come.
        self._permits = permits
        self.guest = guest
        self.since = since
        self.sample: Sample | None = None
        # The period of waiting that the sample belongs to.
        self.look = 0
        # A guest that was told to leave has left before this moment, as a rule.
        self.leaves_by = since

    def may_leave(self, now: float) -> bool:
        """Return whether the place was held for long enough."""
        return now - self.since >= KEPT_SECONDS

    def is_of(self, line: AsyncSemaphore) -> bool:
        """Return whether those in a line wait for this place."""
        return any(permit.owner is line and not permit.released for permit in self._permits)

    def release(self) -> None:
        """Return the place to those who wait; a second call does nothing."""
        self._places.forget(self)
        for permit in self._permits:
            permit.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class SharedPlaces:
    """A number of places. `limits` returns the least rate in force; `log` hears of those who were ended."""

    def __init__(
        self,
        name: str,
        limit: int,
        clock: Clock,
        limits: Callable[[], WriteLimits],
        log: Logger,
        *,
        max_waiting: int = 0,
    ) -> None:
        self.semaphore = AsyncSemaphore(
            name, limit, max_queue=max_waiting, timeout_seconds=0.0, clock=clock, share_by_key=True
        )
        self.uploads = self.semaphore.share(f"uploads of {name}", 1 - 1 / LEFT_OF, share_by_key=True)
        self.lists = self.semaphore.share(
            f"lists of {name}", 1 - 1 / LEFT_OF_LISTS, share_by_key=True, kept_of=_KEPT_OF
        )
        self._clock = clock
        self._limits = limits
        self._log = log
        # The longest held first.
        self._places: dict[Place, None] = {}
        self._timer: Timer | None = None
        self._period = 0
        self._unseen: Iterator[Place] = iter(())
        self._slow: list[tuple[float, Place]] = []
        for line in self._lines:
            line.notify_waits(self._wanted)

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return sum(line.queue_size for line in self._lines)

    @property
    def _lines(self) -> tuple[AsyncSemaphore, ...]:
        return self.semaphore, self.uploads, self.lists

    @property
    def idle(self) -> bool:
        """Return whether nobody holds a place or waits for one."""
        return not self.semaphore.held and not self.waiting

    def apply(self, limit: int, max_waiting: int) -> None:
        """Apply changed limits, of places and of requests that wait in each line; those that wait stay."""
        self.semaphore.max_queue = max_waiting
        self.semaphore.set_limit(limit)
        self.uploads.follow()
        self.lists.follow()

    async def enter(self, guest: "Visit", timeout_seconds: float, *, for_list: bool = False) -> Place:
        """Wait for a place, which the caller must release; raises PermitAcquireError. A cancelled call holds none."""
        ends_by = self._clock.time() + timeout_seconds
        permits: list[Permit] = []
        try:
            if for_list:
                permits.append(await self.lists.acquire(1, key=guest.key, timeout_seconds=timeout_seconds))
            if guest.uploading:
                upload = await self._enter_uploads(guest, ends_by - self._clock.time())
                permits += [] if upload is None else [upload]
            seconds = ends_by - self._clock.time()
            permits.append(await self.semaphore.acquire(1, key=guest.key, timeout_seconds=seconds))
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped raises GeneratorExit here.
            for permit in permits:
                permit.release()
            raise
        place = Place(self, guest, tuple(permits), self._clock.time())
        self._places[place] = None
        return place

    async def _enter_uploads(self, guest: "Visit", timeout_seconds: float) -> Permit | None:
        """Wait for one of the uploads' places, which returns by itself when the body has come; None if that is first.

        Raises PermitAcquireError.
        """
        waits = True
        try:
            async with asyncio.timeout(None) as wait:

                def end_wait() -> None:
                    if waits:
                        wait.reschedule(asyncio.get_running_loop().time())

                guest.when_uploaded(end_wait)
                permit = await self.uploads.acquire(1, key=guest.key, timeout_seconds=timeout_seconds)
        except TimeoutError:
            return None
        finally:
            waits = False
        guest.when_uploaded(permit.release)
        return permit

    def forget(self, place: Place) -> None:
        """Forget a place that is released; a second call does nothing."""
        self._places.pop(place, None)

    def _wanted(self) -> None:
        # The semaphore must not be called from its own callback.
        if self._timer is None:
            self._period += 1
            self._timer = self._clock.call_at(self._clock.time(), self._look)

    # --- a look at all guests ---------------------------------------------------------------------

    def _look(self) -> None:
        if not self.waiting:
            self._timer = None
            return
        self._timer = self._clock.call_at(self._clock.time() + LOOK_SECONDS, self._look)
        self._slow = []
        self._unseen = iter(list(self._places))
        self._look_on()

    def _look_on(self) -> None:
        now, least = self._clock.time(), self._limits().min_bytes_per_second
        seen = list(islice(self._unseen, GUESTS_A_TURN))
        for place in seen:
            try:
                rate = self._rate(place, now) if place in self._places else None
            except Exception as error:
                place.guest.crashed(error)
                continue
            if rate is not None and rate < least:
                self._slow.append((rate, place))
        if len(seen) == GUESTS_A_TURN:
            self._clock.call_at(now, self._look_on)
        else:
            self._make_room(now)

    def _rate(self, place: Place, now: float) -> float | None:
        """Return the client's bytes per second since an earlier look; None if it is too early, or it is not late."""
        new, old = place.guest.sample(now), place.sample
        if new is None or old is None or place.look != self._period or new.of is not old.of:
            place.sample, place.look = new, self._period
            return None
        if new.seconds - old.seconds < _A_LOOK:
            return None
        place.sample = new
        moved = new.moved_bytes - old.moved_bytes
        # A client that has taken all that was there is not late, however little that was.
        return moved / (new.seconds - old.seconds) if moved < old.pending_bytes else None

    # --- making room ------------------------------------------------------------------------------

    def _make_room(self, now: float) -> None:
        slow, self._slow = self._slow, []
        for line in self._lines:
            if line.queue_size:
                self._make_room_in(line, slow, now)

    def _make_room_in(self, line: AsyncSemaphore, slow: list[tuple[float, Place]], now: float) -> None:
        """End as many as wait in a line, of those whose places it wants."""
        places = self._places_of(line)
        staying, waiting = _staying(places, now), line.queue_size
        held = Counter(place.guest.key for place in staying)
        sites = _by_site(held)
        late = [(rate, place.since, place) for rate, place in slow if place in staying]
        late.sort(key=lambda each: (-sites[site_of(each[2].guest.key)], -held[each[2].guest.key], *each[:2]))
        leaving = len(places) - len(staying)
        ended = self._end((place for *_, place in late), waiting - leaving, now, slow=True)
        shared = self._end(self._above_share(line, now, leaving + ended), waiting - leaving - ended, now, slow=False)
        if ended or shared:
            self._log.warning(
                "requests ended for others that wait", limiter=line.name, slow=ended, above_share=shared,
                waiting=waiting,
            )  # fmt: skip

    def _places_of(self, line: AsyncSemaphore) -> list[Place]:
        """Return the places that those in a line wait for, the longest held first."""
        return [place for place in self._places if place.is_of(line)]

    def _end(self, places: Iterator[Place], most: int, now: float, *, slow: bool) -> int:
        ended = 0
        for place in islice(places, max(0, most)):
            place.leaves_by = now + KEPT_SECONDS
            place.guest.give_way(slow=slow)
            ended += 1
        return ended

    def _above_share(self, line: AsyncSemaphore, now: float, leaving: int) -> Iterator[Place]:
        """Yield places of keys above their share, one for each that a key below its share waits for.

        Sites have shares of all places, and the keys of a site have shares of what the site has.
        """
        staying = list(_staying(self._places_of(line), now))
        held = Counter(place.guest.key for place in staying)
        waiting: Counter[Hashable] = Counter()
        for some in line.waiters(_MOST_WAITERS, _MOST_WAITERS):
            waiting.update(each.key for each in some if each.waited_seconds >= _A_LOOK)
        sites, sites_waiting = _by_site(held), _by_site(waiting)
        share = _share(line.limit, sites, sites_waiting)
        # Each place is looked at once, however many sites there are.
        may_leave = [place for place in staying if place.may_leave(now)]
        yielded: set[Place] = set()
        needed = _needed(share, sites, sites_waiting) - leaving
        of_site = _grouped(may_leave, lambda place: site_of(place.guest.key)) if needed > 0 else {}
        for site, count in sites.most_common():
            if needed <= 0 or count <= share:
                break
            # The keys of a site that hold most leave first.
            longest = sorted(of_site.get(site, ()), key=lambda place: -held[place.guest.key])
            for place in longest[: min(count - share, needed)]:
                needed -= 1
                yielded.add(place)
                yield place
        several = dict.fromkeys(key.site for key in waiting if isinstance(key, SiteKey))
        held_inside, waiting_inside = _inside(several, held), _inside(several, waiting)
        of_key = _grouped(may_leave, lambda place: place.guest.key) if several else {}
        for site in several:
            inside, inside_waiting = held_inside[site], waiting_inside[site]
            share_inside = _share(max(share, sites[site]), inside, inside_waiting)
            needed = _needed(share_inside, inside, inside_waiting) - leaving - len(yielded)
            for key, count in inside.most_common() if needed > 0 else ():
                if needed <= 0 or count <= share_inside:
                    break
                for place in of_key.get(key, [])[: min(count - share_inside, needed)]:
                    needed -= 1
                    if place not in yielded:
                        yield place


def _staying(places: Iterable[Place], now: float) -> dict[Place, None]:
    """Return the places whose guests have not been told to leave, in their order."""
    return {place: None for place in places if place.leaves_by <= now}


def _grouped(places: Iterable[Place], group_of: Callable[[Place], Hashable]) -> dict[Hashable, list[Place]]:
    groups: dict[Hashable, list[Place]] = {}
    for place in places:
        groups.setdefault(group_of(place), []).append(place)
    return groups


def _inside(sites: Iterable[Hashable], counts: Counter[Hashable]) -> dict[Hashable, Counter[Hashable]]:
    """Return for each of some sites the counts of its keys."""
    inside: dict[Hashable, Counter[Hashable]] = {site: Counter() for site in sites}
    for key, count in counts.items():
        if (of_site := inside.get(site_of(key))) is not None:
            of_site[key] = count
    return inside


def _by_site(counts: Counter[Hashable]) -> Counter[Hashable]:
    sites: Counter[Hashable] = Counter()
    for key, count in counts.items():
        sites[site_of(key)] += count
    return sites


def _share(limit: int, held: Counter[Hashable], waiting: Counter[Hashable]) -> int:
    return max(1, limit // max(1, len(held.keys() | waiting.keys())))


def _needed(share: int, held: Counter[Hashable], waiting: Counter[Hashable]) -> int:
    """Return how many places those that wait have to get until each has its share."""
    return sum(min(count, max(0, share - held[key])) for key, count in waiting.items())
