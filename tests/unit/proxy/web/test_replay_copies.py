"""Copies of request bodies for redirects: what they hold, and who they give way to."""

from collections.abc import Callable

from limiter.semaphore import AsyncSemaphore
from proxy.core.counters import Counters
from proxy.web.forward.replay_copies import ReplayCopies, ReplayCopy
from tests.support.loops.clock import ManualClock
from tests.support.proxies.counted import counted
from tests.unit.limiter.harness import start

LIMIT = 4 * 1024 * 1024


class Books:
    """A semaphore, the copies under it, and the callbacks that the event loop would run in its next turn."""

    def __init__(self, limit: int = LIMIT, key_cap_percent: int = 100) -> None:
        self.turn: list[Callable[[], None]] = []
        self.direct = AsyncSemaphore("direct", limit, max_queue=100, timeout_seconds=5, clock=ManualClock())
        self.direct.set_sharing(key_cap_percent < 100, key_cap_percent)
        self.counters = Counters()
        self.copies = ReplayCopies(self.direct, self.counters, self.turn.append)

    def copy(self, size: int, key: str = "a", limit: int = LIMIT) -> ReplayCopy:
        copy = self.copies.new(limit, key)
        for _ in range(size // 1000):
            copy.keep(bytes(1000))
        return copy

    def run_turn(self) -> None:
        callbacks, self.turn[:] = list(self.turn), []
        for callback in callbacks:
            callback()


async def test_the_oldest_copies_go_when_a_request_waits_and_no_more_than_it_needs() -> None:
    books = Books()
    first, second, third = (books.copy(100_000) for _ in range(3))
    taken = await books.direct.acquire(LIMIT - books.direct.held)
    assert books.turn == []
    waiting = await start(books.direct.acquire(1000))
    assert books.direct.short
    books.run_turn()
    assert (first.whole, second.whole, third.whole) == (False, True, True)
    (await waiting).release()
    assert counted(books.counters, "http_copies_dropped") == 1
    # A growth that waits is a request that waits.
    other = await books.direct.acquire(books.direct.available)
    growth = await start(books.direct.update(taken, taken.size + 1_000))
    books.run_turn()
    assert books.direct.growers_waiting == 0
    for permit in (await growth, other):
        permit.release()


async def test_nobody_waits_for_the_copies_of_its_own_key() -> None:
    books = Books(key_cap_percent=20)
    own, other = books.copy(100_000, "a"), books.copy(100_000, "b")
    # A fifth of the limit, without the copy.
    waiting = await start(books.direct.acquire(LIMIT // 5 - 1000, key="a"))
    assert not waiting.done()
    assert not books.direct.short
    books.run_turn()
    assert (own.whole, other.whole) == (False, True)
    (await waiting).release()
    assert books.direct.queue_size == 0
