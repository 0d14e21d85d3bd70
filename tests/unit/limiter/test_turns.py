"""Test who waits for whom when keys share, beside what one line does; sizes are bytes, nothing takes time.

Turns and deficits, the cap of a key, the part that is kept for keys that hold nothing, and keys of one site.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial

import pytest

from limiter import AsyncSemaphore, Permit, PermitAcquireTimeout
from limiter.acquires import QUANTA_PER_LIMIT
from limiter.sites import SiteKey, site_of
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start

LIMIT = 1000
QUANTUM = max(1, LIMIT // QUANTA_PER_LIMIT)


@pytest.fixture
def limiter(clock: ManualClock) -> AsyncSemaphore:
    return semaphore(LIMIT, clock, share_by_key=True)


class Storm:
    """Requests that note what each key was given, in order; a permit is held until `free` lets it go."""

    def __init__(self, limiter: AsyncSemaphore) -> None:
        self.limiter = limiter
        self.given: list[tuple[Hashable, int]] = []
        self.held: list[Permit] = []

    async def ask(self, key: Hashable, *sizes: int) -> list["asyncio.Task[None]"]:
        tasks = [asyncio.get_running_loop().create_task(self._one(key, size)) for size in sizes]
        await asyncio.sleep(0)
        return tasks

    async def free(self, until: Callable[[], bool]) -> None:
        while not until():
            assert self.held, f"stuck: {self.limiter!r}"
            self.held.pop(0).release()
            await asyncio.sleep(0)

    @property
    def order(self) -> list[Hashable]:
        return [key for key, _ in self.given]

    def was_given(self, key: Hashable) -> bool:
        return key in self.order

    def bytes_before(self, key: Hashable) -> int:
        """Return what others were given before the first of `key`."""
        return sum(size for _, size in self.given[: self.order.index(key)])

    async def end(self) -> None:
        await self.free(lambda: not (self.limiter.queue_size or self.held))
        assert books_are_zero(self.limiter)

    async def _one(self, key: Hashable, size: int) -> None:
        permit = await self.limiter.acquire(size, key=key)
        self.given.append((key, size))
        self.held.append(permit)


@pytest.fixture
def storm(limiter: AsyncSemaphore) -> Storm:
    return Storm(limiter)


async def test_greedy_tenant_does_not_delay_another_beyond_its_share(storm: Storm) -> None:
    await storm.ask("greedy", *[10] * 10_000)
    await storm.ask("modest", 10)
    await storm.end()
    assert storm.bytes_before("modest") <= LIMIT + QUANTUM + 10, "what was held already, and one turn"


async def test_all_held_permits_growing_let_a_small_acquire_of_another_key_in(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True)
    held = [await limiter.acquire(1, key="greedy") for _ in range(100)]
    modest = await start(limiter.acquire(1, key="modest"))
    growths = [await start(limiter.update(permit, 50)) for permit in held]
    assert sum(growth.done() for growth in growths) == 1
    held[0].release()
    await settle()
    assert modest.done(), "it fits, and the growth goes all the same"
    assert growths[1].done()


async def test_keys_that_wait_get_equal_bytes(storm: Storm) -> None:
    sizes, given = (7, 50, 333), Counter[Hashable]()
    first = await storm.limiter.acquire(LIMIT)
    for number, size in enumerate(sizes):
        await storm.ask(number, *[size] * (3000 // size))
    storm.held.append(first)
    await storm.free(lambda: sum(size for _, size in storm.given) > 6000)
    for key, size in storm.given:
        given[key] += size
        assert max(given.values()) - min(given[key] for key in range(3)) <= QUANTUM + max(sizes)
    await storm.end()


async def test_a_turn_is_a_thousandth_of_the_limit(clock: ManualClock) -> None:
    storm = Storm(semaphore(QUANTA_PER_LIMIT, clock, share_by_key=True))
    storm.limiter.set_limit(2 * QUANTA_PER_LIMIT)
    pool = await storm.limiter.acquire(2 * QUANTA_PER_LIMIT)
    for key in "ab":
        await storm.ask(key, 1, 1, 1, 1)
    for _ in range(8):
        await storm.limiter.update(pool, pool.size - 1)
        await settle()
    assert storm.order == [*"aabbaabb"]


async def test_growth_is_paid_like_an_honest_request(clock: ManualClock) -> None:
    limiter, given = semaphore(100, clock, share_by_key=True), Counter[str]()

    async def request(key: str, estimate: int) -> None:
        with await limiter.acquire(estimate, key=key) as permit:
            await permit.update(50)
            given[key] += 50
            # One pool of estimates is let in before the first of them turns out to be too low.
            assert given["low"] <= given["honest"] + 100 * 50
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(request("honest", 50))
            group.create_task(request("low", 1))
    assert books_are_zero(limiter)


async def test_many_keys_of_small_requests_do_not_starve_a_large_one(storm: Storm) -> None:
    await storm.ask("early", *[10] * 200)
    await storm.ask("large", LIMIT)
    for number in range(300):  # each a key of its own, and never a moment without one that waits
        await storm.ask(f"late {number}", 10)
        if not storm.was_given("large"):
            storm.held.pop(0).release()
            await asyncio.sleep(0)
    await storm.free(partial(storm.was_given, "large"))
    assert storm.bytes_before("large") <= LIMIT + 2 * 10, "the head holds up the others until it fits"
    await storm.end()


async def test_endless_new_keys_do_not_starve_one_in_deficit(limiter: AsyncSemaphore) -> None:
    pool, debtor = await limiter.acquire(LIMIT - 1, key="pool"), await limiter.acquire(1, key="debtor")
    waiting, other = [await start(limiter.acquire(1, key=key)) for key in ("debtor", "other")]
    await debtor.update(1 + 20 * QUANTUM)
    await limiter.update(pool, LIMIT - 21 * QUANTUM)
    late = 0
    while not waiting.done():
        await start(limiter.acquire(1, key=f"late {late}"))
        late += 1
        assert late <= 45, "a debt of twenty quanta is paid after twenty rounds, of two that wait each"
        await limiter.update(pool, pool.size - 1)
        await settle()
    assert late > 35
    assert other.done()


async def test_a_cancelled_grant_leaves_its_key_no_deficit(limiter: AsyncSemaphore) -> None:
    await limiter.acquire(100, key="kept")
    pool = await limiter.acquire(LIMIT - 100, key="pool")
    leaves = await start(limiter.acquire(LIMIT // 2, key="leaves"))
    stays = await start(limiter.acquire(LIMIT, key="stays"))
    pool.release()
    assert limiter.statistics().debt > 0, "granted, but the task has not run"
    leaves.cancel()
    await settle()
    assert (limiter.held, stays.done(), limiter.statistics().debt) == (100, False, 0)


@pytest.mark.parametrize("each", [1, 5], ids=["keys of one quantum each", "one key"])
async def test_few_bytes_pass_a_key_in_deficit_without_waiting(limiter: AsyncSemaphore, each: int) -> None:
    await limiter.acquire(LIMIT // 2, key="pool")
    owes = await limiter.acquire(1, key="owes")
    head, _ = [await start(limiter.acquire(LIMIT, key=key)) for key in ("head", "owes")]
    await owes.update(1 + 20 * QUANTUM)
    head.cancel()
    await settle()
    passed = 0
    while limiter.try_acquire(each * QUANTUM, key=f"new {passed}" if each == 1 else "same") is not None:
        passed += each
    assert 15 <= passed <= 25, "a deficit of twenty quanta lets about as many quanta pass"
    assert limiter.statistics().keys_waiting == 1, "a key that passed does not wait"


async def test_who_waits_keeps_the_order_of_arrival_and_owes_nothing_when_the_limit_changes(clock: ManualClock) -> None:
    storm = Storm(semaphore(4 * QUANTA_PER_LIMIT, clock, share_by_key=True))
    limiter = storm.limiter
    pool, debtor = await limiter.acquire(4000, key="pool"), await limiter.acquire(1, key="debtor")
    for key in ("debtor", "late"):
        clock.advance(1)
        await storm.ask(key, 1000, 1000)
    assert debtor.try_update(61)
    assert limiter.statistics().debt > 0
    limiter.set_limit(2 * QUANTA_PER_LIMIT)
    assert limiter.statistics().debt == 0
    pool.release()
    await settle()
    assert storm.order == ["debtor"]
    debtor.release()
    await storm.end()


# --- the cap of a key -----------------------------------------------------------------------------


@pytest.fixture
def capped(clock: ManualClock) -> AsyncSemaphore:
    """Return a semaphore of which a key may have half."""
    return semaphore(100, clock, share_by_key=True, key_cap_percent=50)


@pytest.mark.parametrize("key", ["a", None])
async def test_a_key_at_its_cap_waits_for_its_own_permits_and_holds_up_nobody(
    capped: AsyncSemaphore, key: str | None
) -> None:
    permit = await capped.acquire(40, key=key)
    waiting = await start(capped.acquire(11, key=key))
    numbers = capped.statistics()
    assert (numbers.keys_waiting, numbers.keys_capped, waiting.done()) == (1, 1, False)
    assert capped.try_acquire(10, key=key) is None, "it stands behind the other of its key"
    other = await capped.acquire(50, key="b")
    permit.release()
    assert (await waiting).size == 11
    other.release()
    waiting.result().release()
    large = await capped.acquire(80, key=key)
    assert capped.try_update(large, 95), "who holds nothing is let in, and growth is never capped"
    large.release()
    assert books_are_zero(capped)


async def test_growth_that_brings_the_head_to_its_cap_lets_the_next_key_go(capped: AsyncSemaphore) -> None:
    growing, pool = await capped.acquire(20, key="a"), await capped.acquire(55, key="pool")
    first = await start(capped.acquire(30, key="a"))
    second = await start(capped.acquire(10, key="b"))
    assert not second.done(), "held up by the head, which does not fit"
    await growing.update(21)
    await settle()
    assert second.done(), "the head has met its cap"
    pool.release()
    await settle()
    assert not first.done()


async def test_a_key_goes_on_as_soon_as_its_own_permit_shrinks(capped: AsyncSemaphore) -> None:
    permit = await capped.acquire(50, key="a")
    waiting = await start(capped.acquire(10, key="a"))
    assert (waiting.done(), capped.statistics().keys_capped) == (False, 1)
    await permit.update(40)
    assert (await waiting).size == 10


async def test_lowered_cap_takes_nothing_back(capped: AsyncSemaphore) -> None:
    permit = await capped.acquire(50, key="a")
    capped.set_sharing(True, 10)
    assert permit.size == 50
    assert capped.try_acquire(1, key="a") is None
    assert capped.try_acquire(10, key="b") is not None
    for percent in (0, 101):
        with pytest.raises(ValueError, match=f"expected a cap of 1 to 100 percent, got {percent}"):
            capped.set_sharing(True, percent)


async def test_switching_keeps_all_who_wait_in_the_order_of_their_arrival_with_their_deadlines(
    clock: ManualClock,
) -> None:
    storm = Storm(semaphore(1, clock))
    first = await storm.limiter.acquire(1)
    for key in "aaab":
        await storm.ask(key, 1)
        clock.advance(0.1)
    storm.limiter.set_sharing(True, 100)
    for key in "ca":
        await storm.ask(key, 1)
        clock.advance(0.1)
    late = await start(storm.limiter.acquire(1, timeout_seconds=5.0))
    storm.limiter.set_sharing(False, 100)
    assert (storm.limiter.queue_size, storm.limiter.share_by_key) == (7, False)
    clock.advance(5.0)
    with pytest.raises(PermitAcquireTimeout):
        await late
    storm.held.append(first)
    await storm.end()
    assert storm.order == [*"aaabca"]


async def test_who_waits_for_its_own_permits_only_makes_memory_not_short(capped: AsyncSemaphore) -> None:
    mine = await capped.acquire(45, key="a")
    own = await start(capped.acquire(11, key="a"))
    short = [capped.short]
    others = await capped.acquire(40, key="b")
    late = await start(capped.acquire(30, key="c"))
    assert [capped.waits_for_itself(key) for key in "abcd"] == [True, False, False, False]
    short.append(capped.short)
    others.release()
    short.append(capped.short)
    assert short == [False, True, False]
    mine.release()
    await settle()
    assert own.done()
    assert late.done()


@pytest.mark.parametrize(
    ("share_by_key", "cap_percent", "limit", "caps"),
    [(True, 50, 100, True), (True, 50, 0, False), (True, 100, 100, False), (False, 50, 100, False)],
)
def test_it_tells_whether_keys_are_capped(
    clock: ManualClock, share_by_key: bool, cap_percent: int, limit: int, caps: bool
) -> None:
    assert semaphore(limit, clock, share_by_key=share_by_key, key_cap_percent=cap_percent).caps_keys is caps


# --- the part that is kept for keys that hold nothing ---------------------------------------------


@pytest.fixture
def keeping(clock: ManualClock) -> AsyncSemaphore:
    """Return a semaphore of which two of eight are kept."""
    return semaphore(8, clock, share_by_key=True, kept_of=4)


async def held(limiter: AsyncSemaphore, key: str, count: int) -> list[Permit]:
    return [await limiter.acquire(1, key=key) for _ in range(count)]


async def waiting(limiter: AsyncSemaphore, key: str, count: int = 1, n: int = 1) -> "list[asyncio.Task[Permit]]":
    return [await start(limiter.acquire(n, key=key)) for _ in range(count)]


async def served(tasks: "list[asyncio.Task[Permit]]") -> int:
    await settle()
    return sum(task.done() for task in tasks)


@pytest.mark.threat("web-lists-one-address")
async def test_a_key_that_takes_all_it_can_keeps_no_newcomer_waiting(keeping: AsyncSemaphore) -> None:
    many = await held(keeping, "many", 6)
    behind = await waiting(keeping, "many", 5)
    assert (await served(behind), keeping.short, keeping.statistics().keys_capped) == (0, True, 0)
    first, second = keeping.try_acquire(1, key="new"), keeping.try_acquire(1, key="newer")
    assert first is not None
    assert second is not None
    assert keeping.try_acquire(1, key="newest") is None, "all is held"
    first.release()
    second.release()
    assert await served(behind) == 0, "what newcomers leave is for newcomers"
    many[0].release()
    assert await served(behind) == 1


async def test_newcomers_that_wait_are_served_before_keys_that_hold_something(keeping: AsyncSemaphore) -> None:
    many, few, last = [await held(keeping, key, count) for key, count in (("many", 6), ("few", 1), ("last", 1))]
    behind, newcomer, holder = [
        await waiting(keeping, key, count) for key, count in (("many", 3), ("new", 1), ("few", 1))
    ]
    last[0].release()
    assert [await served(each) for each in (behind, newcomer, holder)] == [0, 1, 0]
    few[0].release()
    assert [await served(each) for each in (behind, holder)] == [0, 1], "who holds nothing any more is a newcomer"
    for permit in many[:3]:
        permit.release()
    assert await served(behind) == 1


async def test_who_leaves_from_aside_leaves_nothing_there(keeping: AsyncSemaphore) -> None:
    many = await held(keeping, "many", 6)
    (leaves,) = await waiting(keeping, "many")
    short = [keeping.short]
    leaves.cancel()
    many[0].release()
    assert [*short, keeping.short] == [True, False]
    assert keeping.try_acquire(1, key="many") is not None


async def test_keys_that_are_set_aside_take_turns(keeping: AsyncSemaphore) -> None:
    one, other = await held(keeping, "one", 4), await held(keeping, "other", 2)
    first, second = await waiting(keeping, "one", 4), await waiting(keeping, "other", 4)
    for permit in (*one[:3], *other[:1]):
        permit.release()
        await settle()
    assert (await served(first), await served(second)) == (2, 2)


async def test_a_key_outside_that_meets_its_cap_holds_up_nobody(clock: ManualClock) -> None:
    limiter = semaphore(8, clock, share_by_key=True, kept_of=4, key_cap_percent=50)
    many, more = await held(limiter, "many", 3), await held(limiter, "more", 2)
    await held(limiter, "few", 1)
    first, second = await waiting(limiter, "many"), await waiting(limiter, "few")
    assert limiter.statistics().keys_capped == 0
    await many[0].update(2)
    for permit in more:
        permit.release()
    assert (await served(first), await served(second)) == (0, 1)
    many[0].release()
    assert await served(first) == 1


async def test_the_first_outside_holds_up_the_others_there_and_no_newcomer(keeping: AsyncSemaphore) -> None:
    many, few = await held(keeping, "many", 5), await held(keeping, "few", 1)
    large, small = await waiting(keeping, "many", n=4), await waiting(keeping, "few")
    many[0].release()
    await settle()
    assert keeping.try_acquire(1, key="few") is None
    assert (await served(large), await served(small)) == (0, 0), "a large request would wait without end"
    newcomer = keeping.try_acquire(1, key="new")
    assert newcomer is not None
    for permit in (newcomer, *many[1:4]):
        permit.release()
    assert (await served(large), await served(small)) == (1, 0)
    few[0].release()
    assert await served(small) == 1


# --- sites ----------------------------------------------------------------------------------------


def network(site: str, number: int) -> SiteKey:
    return SiteKey(f"{site}{number}", site)


@pytest.fixture
async def one_place(clock: ManualClock) -> Storm:
    """Return a storm for one place, which is taken."""
    storm = Storm(semaphore(1, clock, share_by_key=True))
    storm.held.append(await storm.limiter.acquire(1, key="first"))
    return storm


@pytest.mark.threat("many-networks-one-customer")
async def test_a_thousand_networks_of_a_site_are_one_key_to_others(one_place: Storm, keeping: AsyncSemaphore) -> None:
    for number in range(1000):
        await one_place.ask(network("crowd", number), 1)
    await one_place.ask("other", 1, 1, 1)
    await one_place.end()
    assert [number for number, key in enumerate(one_place.order) if key == "other"] == [1, 3, 5]
    # One key for what is kept, too.
    for number in range(6):
        await keeping.acquire(1, key=network("crowd", number))
    assert keeping.try_acquire(1, key=network("crowd", 6)) is None
    assert keeping.try_acquire(1, key=network("other", 1)) is not None


@pytest.mark.threat("neighbours-in-a-site")
async def test_a_network_with_many_waiters_delays_its_neighbours_by_one_a_turn(one_place: Storm) -> None:
    many, few = network("site", 1), network("site", 2)
    await one_place.ask(many, *[1] * 100)
    await one_place.ask(few, 1, 1)
    await one_place.end()
    assert one_place.order[:5] == [many, few, many, few, many]


async def test_whoever_leaves_the_line_the_others_keep_their_turns(clock: ManualClock) -> None:
    dice = random.Random(7)
    for _ in range(50):
        storm = Storm(semaphore(1, clock, share_by_key=True))
        storm.held.append(await storm.limiter.acquire(1, key="first"))
        keys, tasks = [network("site", dice.randrange(6)) for _ in range(50)], list[asyncio.Task[None]]()
        gone = dice.sample(range(40), 25)
        for number, key in enumerate(keys):
            if number == 40:
                for leaves in gone[:15]:
                    tasks[leaves].cancel()
                await settle()
            tasks += await storm.ask(key, 1)
        for leaves in gone[15:]:
            tasks[leaves].cancel()
        await storm.end()
        assert Counter(storm.order) == Counter(key for number, key in enumerate(keys) if number not in gone)


async def test_a_neighbour_that_passes_takes_the_turn_of_its_site_and_lets_the_next_one_go(
    limiter: AsyncSemaphore,
) -> None:
    other = await limiter.acquire(LIMIT, key="other")
    await start(limiter.acquire(100, key=network("site", 1)))
    large = await start(limiter.acquire(900, key=network("site", 1)))
    await start(limiter.acquire(300, key="behind"))
    behind = await start(limiter.acquire(200, key="behind"))
    other.try_update(600)
    other.try_update(100)
    assert await served([large, behind]) == 0, "the site has its turn first, and what waits there does not fit"
    assert limiter.try_acquire(210, key=network("site", 2)) is not None
    assert (await served([large]), await served([behind])) == (0, 1), "now it has the turn, and it fits"


async def test_a_neighbour_that_takes_nothing_of_what_is_kept_goes_before_one_that_stands_aside_and_owes(
    clock: ManualClock,
) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True, kept_of=4)
    other = await limiter.acquire(950, key="other")
    await start(limiter.acquire(100, key=network("site", 1)))
    large = await start(limiter.acquire(400, key=network("site", 1)))
    other.try_update(500)
    small = await start(limiter.acquire(50, key=network("site", 2)))
    assert (await served([large]), await served([small])) == (0, 1)


def test_a_plain_key_is_its_own_site() -> None:
    assert [site_of(key) for key in ("key", None, 5, network("site", 1))] == ["key", None, 5, "site"]
    assert network("site", 1) == "site1"
