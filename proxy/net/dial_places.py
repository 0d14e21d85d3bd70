"""Places for connections that are being opened to hosts which clients make up.

Rules: a dial holds a place from its first socket until a socket is open. The places are a part of the process's
descriptors, so hosts that never answer leave descriptors to everybody else. Networks of clients (`host_network`) take
turns; no network has a limit of its own. While others wait, and the network with most dials has more than its share
(all places by the networks that dial or wait), its oldest dials end `LEAST_DIAL_SECONDS` after their beginning, at
most as many as others wait. No I/O, no clock of its own.
"""

from collections.abc import Callable
from typing import Final, Self

from limiter.clock import Clock
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import counter, gauge_by
from proxy.core.descriptors import descriptor_limit
from proxy.core.key_members import KeyMembers, SiteSizes

# Sockets of one dial at a time.
SOCKETS_A_DIAL: Final = 3
# The part of the descriptors that all dials together may take.
DESCRIPTORS_PART: Final = 8
MOST_DIALS: Final = 2048
# A SYN that is lost is sent again after a second: a host that answers has answered by then.
LEAST_DIAL_SECONDS: Final = 2.0
DIALS: Final = gauge_by(
    "state",
    "target_dials",
    "Connections that are opened to hosts which clients make up, by state; they take turns by address.",
)
GIVEN_UP: Final = counter("target_dials_given_up", "Such connections that had to end after 2 s because others waited.")


class DialPlace:
    """The place of a dial of `network` that began at `began`; leaving the context returns the place."""

    __slots__ = ("_began", "_ends_at", "_hurried_to", "_permit", "_places", "network")

    def __init__(self, places: "DialPlaces", network: str, permit: Permit, began: float) -> None:
        self._places = places
        self._permit = permit
        self._began = began
        self._ends_at: Callable[[float], None] | None = None
        # When the dial has to end, because others wait.
        self._hurried_to: float | None = None
        self.network = network

    def ends_by(self, reschedule: Callable[[float], None]) -> None:
        """Call `reschedule` with the moment at which the dial has to end, once others wait."""
        self._ends_at = reschedule
        if self._hurried_to is not None:
            reschedule(self._hurried_to)

    def hurry(self) -> None:
        """End the dial soon: others wait."""
        self._hurried_to = self._began + LEAST_DIAL_SECONDS
        if self._ends_at is not None:
            self._ends_at(self._hurried_to)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._places.left(self)
        self._permit.release()


class DialPlaces:
    """At most `most` dials at a time."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._semaphore = AsyncSemaphore(
            "dials", most, max_queue=0, timeout_seconds=0.0, clock=clock, share_by_key=True
        )
        # Dials that have not been told to end; those that have.
        self._staying: KeyMembers[str, DialPlace] = KeyMembers()
        self._ending: set[DialPlace] = set()
        # Networks that dial or wait; those that wait, and all who do.
        self._wanting: SiteSizes[str] = SiteSizes()
        self._waiting: SiteSizes[str] = SiteSizes()
        self._in_line = 0
        # Dials that were told to end.
        self.given_up = 0

    def states(self) -> dict[str, int]:
        """Return how many dials hold a place, and how many wait for one."""
        return {"opening": self._semaphore.held, "waiting": self._semaphore.queue_size}

    async def enter(self, network: str, timeout_seconds: float) -> DialPlace:
        """Wait for a place of `network`; raises PermitAcquireError if there is none in time."""
        self._wanting.grow(network)
        try:
            return self._at_once(network) or await self._in_turn(network, timeout_seconds)
        except BaseException:
            self._wanting.shrink(network)
            raise

    def left(self, place: DialPlace) -> None:
        """Forget a dial that is over."""
        self._wanting.shrink(place.network)
        self._staying.remove(place)
        self._ending.discard(place)

    def _at_once(self, network: str) -> DialPlace | None:
        permit = self._semaphore.try_acquire(1, key=network)
        return None if permit is None else self._begin(network, permit)

    async def _in_turn(self, network: str, timeout_seconds: float) -> DialPlace:
        self._waiting.grow(network)
        self._in_line += 1
        try:
            self._hurry(network)
            permit = await self._semaphore.acquire(1, key=network, timeout_seconds=timeout_seconds)
        finally:
            self._in_line -= 1
            self._waiting.shrink(network)
        return self._begin(network, permit)

    def _begin(self, network: str, permit: Permit) -> DialPlace:
        place = DialPlace(self, network, permit, self._clock.time())
        self._staying.add(network, place)
        self._hurry(network)
        return place

    def _hurry(self, newcomer: str) -> None:
        """End dials of networks above their share soon, at most as many as others wait: sites first, then inside."""
        sizes, sites = self._staying.sizes, len(self._wanting)
        while sizes.most * sites > self._most:
            network = next(sizes.largest())
            if not self._end_soon(network, self._waiting[network]):
                break
        wanting = self._wanting.within(newcomer)
        while (staying := sizes.within(newcomer)) and wanting and staying.most * len(wanting) * sites > self._most:
            network = next(staying.largest())
            if not self._end_soon(network, self._waiting.inside(network)):
                break

    def _end_soon(self, network: str, own: int) -> bool:
        """End the oldest dial of a network soon; return False if as many end as others wait, beside its `own`."""
        if len(self._ending) >= self._in_line - own:
            return False
        place = next(iter(self._staying.of(network)))
        self._staying.remove(place)
        self._ending.add(place)
        self.given_up += 1
        place.hurry()
        return True


def most_dials() -> int:
    """Return the bound of dials, by the descriptors that this process may have."""
    limit = descriptor_limit()
    return MOST_DIALS if limit is None else max(1, min(MOST_DIALS, limit // (DESCRIPTORS_PART * SOCKETS_A_DIAL)))
