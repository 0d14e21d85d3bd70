"""The limiter's semaphore as the reference sees it: permits out of a limit, and a line of those who wait for them.

Rules, those of docs/adr/0003: newcomers are served in order (`InOrder`, or `turns.Turns`), and a first one that does
not fit holds up the others; growth goes before newcomers, and one permit at a time may overshoot the limit; an acquire
larger than the limit passes alone, clamped. What is freed is booked to the next before it runs.
"""

from functools import partial

from pipeline.replay.model import Phase
from pipeline.replay.virtual import VirtualTime, Wait

__all__ = ["Claim", "Growth", "InOrder", "Line", "Newcomer", "Permit", "QueueFull", "WaitedTooLong"]


class WaitedTooLong(Exception):
    """Tells that the timeout of a line ended the wait."""


class QueueFull(Exception):
    """Tells that as many wait as may wait."""


class Permit:
    """What somebody has booked; the line writes its fields."""

    def __init__(self, key: int) -> None:
        self.size = 0
        self.key = key
        self.released = False


class Newcomer(Wait):
    """One that waits for a permit; `permit` is what it got."""

    def __init__(self, line: "Line", size: int, key: int) -> None:
        super().__init__(line.time, partial(line.leave, self))
        self.size = size
        self.key = key
        self.arrival = 0  # its place among all, where keys go in turns
        self.deadline: tuple[int, int] = (0, 0)
        self.permit: Permit | None = None


class Growth(Wait):
    """One that waits for its permit to become `size`."""

    def __init__(self, line: "Line", permit: Permit, size: int) -> None:
        super().__init__(line.time, partial(line.leave, self))
        self.permit = permit
        self.size = size
        self.deadline: tuple[int, int] = (0, 0)


class Claim:
    """Who is charged, while an acquire waits and while its permit is held."""

    def __init__(self, line: "Line", key: int) -> None:
        self._line = line
        self.key = key
        self.charged: Newcomer | Permit | None = None

    def recharge(self, key: int) -> None:
        """Charge `key` from now on."""
        if key == self.key:
            return
        self.key = key
        if self.charged is not None:
            self._line.recharge(self.charged, key)

    def prolong(self) -> None:
        """Let the acquire that waits go on for a whole timeout from now."""
        if isinstance(self.charged, Newcomer) and not self.charged.over:
            self._line.watch(self.charged)


class InOrder:
    """The newcomers of a line, first come, first served; keys count for nothing."""

    def __init__(self) -> None:
        self._waiting: dict[Newcomer, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def first(self) -> Newcomer | None:
        """Give who goes next."""
        return next(iter(self._waiting), None)

    def push(self, newcomer: Newcomer) -> None:
        """Take in one more."""
        self._waiting[newcomer] = None

    def remove(self, newcomer: Newcomer) -> None:
        """Let one go, wherever it stands."""
        del self._waiting[newcomer]

    def take(self, newcomer: Newcomer, size: int) -> None:
        """Let the first one go with `size`."""
        self.remove(newcomer)

    def admits(self, key: int, n: int) -> bool:
        """Tell whether one that has just come would go before all who wait."""
        return not self._waiting

    def pay_at_once(self, key: int, n: int) -> None:
        """Book what was given to one that did not wait."""

    def charge(self, key: int, n: int) -> None:
        """Book growth."""

    def behind(self, key: int) -> bool:
        """Tell whether the key's turn comes after that of the first one."""
        return False

    def freed(self, key: int) -> None:
        """Take note that a key holds less."""

    def move(self, newcomer: Newcomer, key: int) -> None:
        """Give one that waits another key."""
        newcomer.key = key

    def at_cap(self, key: int, n: int) -> bool:
        """Tell whether one with that key would wait for permits of its own key."""
        return False


class Line:
    """One semaphore; a limit of 0 is none, a queue of 0 has no bound, a timeout of None never ends."""

    def __init__(
        self,
        time: VirtualTime,
        limit: int,
        *,
        max_queue: int = 0,
        timeout_us: int | None = None,
        phase: Phase = Phase.MEMORY_DEADLINE,
    ) -> None:
        self.time = time
        self.limit = limit
        self.held = 0
        self.held_by: dict[int, int] = {}
        self.peak = 0
        self.order = InOrder()
        self._max_queue = max_queue
        self._timeout_us = timeout_us
        self._phase = phase
        self._growers: dict[Growth, None] = {}
        self._overshooter: Permit | None = None
        self._overshot_from = 0

    async def acquire(self, n: int, claim: Claim) -> Permit:
        """Wait for `n`; raises QueueFull and WaitedTooLong."""
        if n == 0 or self.order.admits(claim.key, n):
            size = self._room_for(n)
            if size is not None:
                if size:
                    self.order.pay_at_once(claim.key, size)
                claim.charged = permit = self._book(claim.key, size)
                return permit
        newcomer = self._queue(n, claim.key)
        claim.charged = newcomer
        claim.charged = given = await self._granted(newcomer)
        return given

    def try_update(self, permit: Permit, n: int) -> bool:
        """Shrink, or grow if nobody else overshoots; tells whether it was done."""
        if n > permit.size:
            if not self._may_grow(permit, n):
                return False
            self._grow(permit, n)
            self._serve()
        elif n < permit.size:
            self._resize(permit, n)
            self.order.freed(permit.key)
            self._serve()
        return True

    async def update(self, permit: Permit, n: int) -> None:
        """Change a permit to `n`, which may have to wait; after WaitedTooLong the old size is still booked."""
        if not self.try_update(permit, n):
            self._must_be_patient()
            growth = Growth(self, permit, n)
            self._growers[growth] = None
            self.watch(growth)
            await growth

    def release(self, permit: Permit) -> None:
        """Give everything back; a second call does nothing."""
        if not permit.released:
            permit.released = True
            self._resize(permit, 0)
            self.order.freed(permit.key)
            self._serve()

    def recharge(self, charged: Newcomer | Permit, key: int) -> None:
        """Charge another key from now on; nothing for what has ended."""
        if isinstance(charged, Newcomer) and not charged.over:
            self.order.move(charged, key)
            self._serve()
            return
        permit = charged if isinstance(charged, Permit) else charged.permit
        if permit is None or permit.released:
            return
        old, permit.key = permit.key, key
        self._charge(old, -permit.size)
        self._charge(key, permit.size)
        self.order.charge(old, -permit.size)
        self.order.charge(key, permit.size)
        self.order.freed(old)
        self._serve()

    def leave(self, wait: Newcomer | Growth) -> None:
        """Let one go that waits, and serve those it held up."""
        if isinstance(wait, Growth):
            del self._growers[wait]
        else:
            self.order.remove(wait)
        self._serve()

    def watch(self, wait: Newcomer | Growth) -> None:
        """End a wait after the timeout, from now."""
        if self._timeout_us is None:
            return
        wait.deadline = watched = (self.time.now + self._timeout_us, wait.deadline[1] + 1)
        self.time.at(watched[0], self._phase, partial(self._expire, wait, watched))

    def _expire(self, wait: Newcomer | Growth, deadline: tuple[int, int]) -> None:
        if wait.over or wait.deadline != deadline:
            return
        wait.wake(error=WaitedTooLong())
        self.leave(wait)

    def _must_be_patient(self) -> None:
        if self._timeout_us is not None and self._timeout_us <= 0:
            raise WaitedTooLong

    def _queue(self, n: int, key: int) -> Newcomer:
        self._must_be_patient()
        if len(self.order) >= self._max_queue > 0:
            raise QueueFull
        newcomer = Newcomer(self, n, key)
        self.order.push(newcomer)
        self.watch(newcomer)
        return newcomer

    async def _granted(self, newcomer: Newcomer) -> Permit:
        await newcomer
        assert newcomer.permit is not None, "woken without a permit"
        return newcomer.permit

    def _serve(self) -> None:
        """Serve all who may go now: growers first, but a key in debt lets the first newcomer pass if that fits."""
        while True:
            growth, newcomer = next(iter(self._growers), None), self.order.first()
            if newcomer is not None and (growth is None or self.order.behind(growth.permit.key)):
                size = self._room_for(newcomer.size)
                if size is not None:
                    self.order.take(newcomer, size)
                    newcomer.permit = self._book(newcomer.key, size)
                    newcomer.wake()
                    continue
            if growth is None or not self._may_grow(growth.permit, growth.size):
                return
            del self._growers[growth]
            self._grow(growth.permit, growth.size)
            growth.wake()

    def _room_for(self, n: int) -> int | None:
        if self.limit <= 0 or n <= self.limit - self.held or n == 0:
            return n
        return self.limit if n > self.limit and self.held == 0 else None

    def _may_grow(self, permit: Permit, n: int) -> bool:
        fits = self.limit <= 0 or self.held + n - permit.size <= self.limit
        return fits or self._overshooter in (None, permit)

    def _book(self, key: int, size: int) -> Permit:
        permit = Permit(key)
        self._resize(permit, size)
        return permit

    def _grow(self, permit: Permit, n: int) -> None:
        grown = n - permit.size
        self._resize(permit, n)
        self.order.charge(permit.key, grown)

    def _resize(self, permit: Permit, n: int) -> None:
        self.held += n - permit.size
        self.peak = max(self.peak, self.held)
        if self._overshooter is not None:
            if self.held <= self.limit or (permit is self._overshooter and n <= self._overshot_from):
                self._overshooter = None
        elif n > permit.size and self.held > self.limit > 0:
            self._overshooter, self._overshot_from = permit, permit.size
        self._charge(permit.key, n - permit.size)
        permit.size = n

    def _charge(self, key: int, delta: int) -> None:
        self.held_by[key] = self.held_by.get(key, 0) + delta
