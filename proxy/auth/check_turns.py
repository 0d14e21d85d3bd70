"""Order the checks of passwords: turns by site, network and user, and wrong guesses after all others.

Rules:
- Sites (`networks_of`) take turns, inside a site its networks do, and inside a network its users do. So guessers from
  one site delay other sites by one check at a time, and guesses of one user delay other users of that address likewise.
- Sites that sent no wrong password lately go first, so that many guessing sites delay nobody else either. Every fourth
  check is for the others: many clients may share one address. The same rule holds for the networks of a site and for
  the pairs of a network.
- A pair of network and user that gave a wrong password waits for `FailedGuesses.delayed_until`, has one check at a
  time, and only few of its clients may wait.
- A check that its client did not wait for counts as wrong: else guessers that leave early would never be delayed.
- With `most_waiting` clients waiting, a newcomer takes the place of the newest client of the pair that has most, in the
  network that has most, in the site that has most; if that is the newcomer's own pair, the newcomer is refused.

No I/O; the clock is the caller's. No method that changes the order has an `await`.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from limiter.clock import Clock, Timer
from proxy.auth.failed_guesses import FailedGuesses, Pair
from proxy.auth.identity import AuthenticationFailed

MOST_WAITING: Final = 1000
MOST_WAITING_AFTER_FAILURE: Final = 8
FAILED_ONE_IN: Final = 4


class _Rings:
    """Members that take turns, apart by whether they have failed; a member is in one ring at most."""

    __slots__ = ("_clean", "_failed", "_since_failed")

    def __init__(self) -> None:
        self._clean: OrderedDict[str | Pair, _Group | _Waiting] = OrderedDict()
        self._failed: OrderedDict[str | Pair, _Group | _Waiting] = OrderedDict()
        self._since_failed = 0

    def __bool__(self) -> bool:
        return bool(self._clean or self._failed)

    def put(self, member: "_Group | _Waiting", *, failed: bool) -> None:
        """Add a member at the end of its ring; a member that is in that ring keeps its place."""
        ring, other = (self._failed, self._clean) if failed else (self._clean, self._failed)
        other.pop(member.key, None)
        ring.setdefault(member.key, member)

    def discard(self, member: "_Group | _Waiting") -> None:
        """Remove a member if it is here."""
        self._clean.pop(member.key, None)
        self._failed.pop(member.key, None)

    def next(self) -> "_Group | _Waiting":
        """Return the member whose turn it is, and move it to the end of its ring."""
        if self._clean and self._failed:
            self._since_failed = (self._since_failed + 1) % FAILED_ONE_IN
            ring = self._clean if self._since_failed else self._failed
        else:
            ring = self._clean or self._failed
        key, member = next(iter(ring.items()))
        ring.move_to_end(key)
        return member


class _Group:
    """The pairs of one network, the networks of one site, or all sites; and the number of clients that wait there."""

    __slots__ = ("key", "members", "parent", "ready", "waiting")

    def __init__(self, key: str, parent: "_Group | None") -> None:
        self.key = key
        self.parent = parent
        self.members: dict[str | Pair, _Group | _Waiting] = {}
        self.ready = _Rings()
        self.waiting = 0

    def group(self, key: str) -> "_Group":
        """Return the member of that key, a new one if there is none."""
        found = self.members.get(key)
        if found is None:
            found = self.members[key] = _Group(key, self)
        assert isinstance(found, _Group)
        return found

    def add_waiting(self, number: int) -> None:
        """Count clients that began or ended to wait, here and in all groups around."""
        group: _Group | None = self
        while group is not None:
            group.waiting += number
            group = group.parent


class _Waiting:
    """The clients of one pair: those that wait, in order, and the number of checks under way."""

    __slots__ = ("delayed_until", "key", "network", "running", "waiters")

    def __init__(self, key: Pair, network: _Group) -> None:
        self.key = key
        self.network = network
        self.waiters: OrderedDict[asyncio.Future[bool], None] = OrderedDict()
        self.running = 0
        self.delayed_until = 0.0  # the moment of the pair's entry in the heap

    @property
    def waiting(self) -> int:
        """Return how many clients wait."""
        return len(self.waiters)


class CheckTurns:
    """Gives `places` checks at once to the clients that wait for one."""

    def __init__(self, clock: Clock, places: int, most_waiting: int = MOST_WAITING) -> None:
        self._clock = clock
        self._free = places
        self._most_waiting = most_waiting
        self._guesses = FailedGuesses()
        self._sites = _Group("", None)
        self._delayed: list[tuple[float, int, _Waiting]] = []  # a heap; stale entries are skipped
        self._entries = 0
        self._timer: Timer | None = None
        self.running = 0

    @property
    def waiting(self) -> int:
        """Return how many clients wait."""
        return self._sites.waiting

    @asynccontextmanager
    async def turn(self, client: str, user: str) -> AsyncIterator[None]:
        """Wait for the turn of a client (`address:port`) that names `user`; the body is the check of the password.

        A body that ends normally has proven the password; a body that raises has not, unless it was too busy to check.
        Raise AuthenticationFailed, busy, if too many wait.
        """
        waiting = await self._granted(self._guesses.pair_of(client, user))
        proven: bool | None = False
        try:
            yield
            proven = True
        except AuthenticationFailed as failure:
            proven = None if failure.busy else False
            raise
        finally:
            self._ended(waiting, proven)

    # --- arrivals -----------------------------------------------------------------------------------

    async def _granted(self, pair: Pair) -> _Waiting:
        """Wait until a place is booked for the pair."""
        waiting, waiter = self._join(pair)
        try:
            granted = await waiter
        except BaseException:
            # Not only CancelledError: a coroutine that is dropped raises GeneratorExit here.
            self._leave(waiting, waiter)
            raise
        if not granted:
            raise _too_many()
        return waiting

    def _join(self, pair: Pair) -> tuple[_Waiting, asyncio.Future[bool]]:
        self._make_room(pair)
        network = self._sites.group(pair.site).group(pair.network)
        waiting = network.members.get(pair)
        if waiting is None:
            waiting = network.members[pair] = _Waiting(pair, network)
        assert isinstance(waiting, _Waiting)
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.waiters[waiter] = None
        network.add_waiting(1)
        self._settle(waiting)
        self._serve()
        return waiting, waiter

    def _make_room(self, pair: Pair) -> None:
        """Refuse a newcomer, or end the wait of another client, if too many wait."""
        own = self._path(pair)
        if own and own[-1].key == pair and own[-1].waiting >= MOST_WAITING_AFTER_FAILURE and self._has_failed(pair):
            raise _too_many()
        if self.waiting >= self._most_waiting:
            fullest = self._fullest(pair, own)
            waiter = next(reversed(fullest.waiters))
            self._remove(fullest, waiter)
            if not waiter.done():
                waiter.set_result(False)

    def _path(self, pair: Pair) -> list[_Group | _Waiting]:
        """Return the site, the network and the clients of a pair, as far as there are any."""
        path: list[_Group | _Waiting] = []
        group: _Group | _Waiting | None = self._sites
        keys: tuple[str | Pair, ...] = (pair.site, pair.network, pair)
        for key in keys:
            assert isinstance(group, _Group)
            if (group := group.members.get(key)) is None:
                break
            path.append(group)
        return path

    def _fullest(self, pair: Pair, own: list[_Group | _Waiting]) -> _Waiting:
        """Return the pair whose newest client leaves for a newcomer; raise AuthenticationFailed if it is its own.

        Linear in the sites, networks and pairs that wait, of which there are at most `most_waiting`.
        """
        found: _Group | _Waiting = self._sites
        mine = True  # whether all that was chosen is the newcomer's own
        keys: tuple[str | Pair, ...] = (pair.site, pair.network, pair)
        for depth, key in enumerate(keys):
            assert isinstance(found, _Group)
            ours = own[depth] if mine and depth < len(own) else None

            def weight_of(one: _Group | _Waiting, ours: _Group | _Waiting | None = ours) -> tuple[int, bool]:
                return one.waiting + (one is ours), self._has_failed(one.key)

            found = max(found.members.values(), key=weight_of)
            if mine and found is not ours and (1, self._has_failed(key)) >= weight_of(found):
                raise _too_many()
            mine = mine and found is ours
        if mine:
            raise _too_many()
        assert isinstance(found, _Waiting)
        return found

    def _has_failed(self, key: str | Pair) -> bool:
        now = self._clock.time()
        if isinstance(key, Pair):
            return self._guesses.pair_has_failed(key, now)
        return self._guesses.network_has_failed(key, now)

    def _leave(self, waiting: _Waiting, waiter: "asyncio.Future[bool]") -> None:
        """Return the place in line of a cancelled client, or the place that was booked for it in the same moment."""
        if waiter in waiting.waiters:
            self._remove(waiting, waiter)
        elif waiter.done() and not waiter.cancelled() and waiter.result():
            self._ended(waiting, None)

    def _remove(self, waiting: _Waiting, waiter: "asyncio.Future[bool]") -> None:
        del waiting.waiters[waiter]
        waiting.network.add_waiting(-1)
        self._settle(waiting)

    # --- turns --------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._free and self._sites.ready:
            waiting: _Group | _Waiting = self._sites
            while isinstance(waiting, _Group):
                waiting = waiting.ready.next()
            waiter = next(iter(waiting.waiters))
            waiting.running += 1
            self._free -= 1
            self.running += 1
            self._remove(waiting, waiter)
            # The waiter of a cancelled task stays here until the task runs.
            if waiter.done():
                self._give_back(waiting)
            else:
                waiter.set_result(True)

    def _ended(self, waiting: _Waiting, proven: bool | None) -> None:
        """Record the end of a check; `proven` is None if the check gave no verdict."""
        if proven:
            self._guesses.proven(waiting.key)
        elif proven is False:
            self._guesses.failed(waiting.key, self._clock.time())
        self._give_back(waiting)
        self._serve()

    def _give_back(self, waiting: _Waiting) -> None:
        waiting.running -= 1
        self._free += 1
        self.running -= 1
        self._settle(waiting)

    def _settle(self, waiting: _Waiting) -> None:
        """Put a pair where it belongs now: among those ready, among those delayed, or nowhere."""
        network, pair = waiting.network, waiting.key
        failed = self._has_failed(pair)
        due = self._guesses.delayed_until(pair)
        if waiting.waiters and self._clock.time() >= due and not (failed and waiting.running):
            network.ready.put(waiting, failed=failed)
        else:
            network.ready.discard(waiting)
            if waiting.waiters and not waiting.running:
                self._delay(waiting, due)
            elif not waiting.waiters and not waiting.running:
                network.members.pop(pair, None)
        group = network
        while group.parent is not None:
            if group.ready:
                group.parent.ready.put(group, failed=self._has_failed(group.key))
            else:
                group.parent.ready.discard(group)
                if not group.members:
                    group.parent.members.pop(group.key, None)
            group = group.parent

    def _delay(self, waiting: _Waiting, due: float) -> None:
        if waiting.delayed_until == due:
            return
        waiting.delayed_until = due
        if len(self._delayed) > 2 * self._most_waiting:
            self._delayed = [entry for entry in self._delayed if _counts(entry)]
            heapq.heapify(self._delayed)
        self._entries += 1
        heapq.heappush(self._delayed, (due, self._entries, waiting))
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._delayed:
            self._timer = self._clock.call_at(self._delayed[0][0], self._due)

    def _due(self) -> None:
        """Make pairs ready whose delay is over."""
        self._timer = None
        now = self._clock.time()
        while self._delayed and self._delayed[0][0] <= now:
            entry = heapq.heappop(self._delayed)
            if _counts(entry):
                entry[2].delayed_until = 0.0
                self._settle(entry[2])
        self._wake_in_time()
        self._serve()


def _counts(entry: tuple[float, int, _Waiting]) -> bool:
    """Return whether a pair waits for the moment of its entry: pairs leave, and are delayed afresh."""
    due, _, waiting = entry
    return bool(waiting.waiters) and waiting.delayed_until == due


def _too_many() -> AuthenticationFailed:
    return AuthenticationFailed("too many passwords wait to be checked, try again", busy=True)
