"""Test who waits for whom when keys share, beside what one line does; sizes are bytes, nothing takes time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial

import pytest

from limiter import AsyncSemaphore, Permit, PermitAcquireTimeout
from limiter.fair_queue import QUANTA_PER_LIMIT
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import books_are_zero, semaphore, settle, start

LIMIT = 1000
QUANTUM = max(1, LIMIT // QUANTA_PER_LIMIT)


class Storm:
    """Requests that note what each key was given, in order; a permit is held until `free` lets it go."""

    def __init__(self, limiter: AsyncSemaphore) -> None:
        self.limiter = limiter
        self.given: list[tuple[Hashable, int]] = []
        self.held: list[Permit] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.total = 0  # bytes given

    async def ask(self, key: Hashable, *sizes: int) -> None:
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(self._one(key, size)) for size in sizes]
        await asyncio.sleep(0)

    async def free(self, until: Callable[[], bool]) -> None:
        while not until():
            assert self.held, f"stuck: {self.limiter!r}"
            self.held.pop(0).release()
            await asyncio.sleep(0)

    def was_given(self, key: Hashable) -> bool:
        return any(given == key for given, _ in self.given)

    def bytes_before(self, key: Hashable) -> int:
        """Return what others were given before the first of `key`."""
        first = [given for given, _ in self.given].index(key)
        return sum(size for _, size in self.given[:first])

    async def end(self) -> None:
        await self.free(lambda: len(self.given) == len(self.tasks) and not self.held)
        assert books_are_zero(self.limiter)

    async def _one(self, key: Hashable, size: int) -> None:
        permit = await self.limiter.acquire(size, key=key)
        self.given.append((key, size))
        self.total += size
        self.held.append(permit)


async def storm_of_one_greedy_tenant(clock: ManualClock, share_by_key: bool) -> Storm:
    storm = Storm(semaphore(LIMIT, clock, share_by_key=share_by_key))
    await storm.ask("greedy", *[10] * 10_000)
    await storm.ask("modest", 10)
    await storm.end()
    return storm


async def test_greedy_tenant_does_not_delay_another_beyond_its_share(clock: ManualClock) -> None:
    one_line = await storm_of_one_greedy_tenant(clock, share_by_key=False)
    turns = await storm_of_one_greedy_tenant(clock, share_by_key=True)
    assert one_line.bytes_before("modest") == 10_000 * 10
    assert turns.bytes_before("modest") <= LIMIT + QUANTUM + 10, "what was held already, and one turn"


class Underestimated:
    """Connections that answer one request after the other, each far larger than the estimate let in for it."""

    def __init__(self, limiter: AsyncSemaphore, actual: int) -> None:
        self.limiter = limiter
        self.actual = actual
        self.done: list[str] = []
        self.let_in_after: dict[str, int] = {}

    async def request(self, key: str, connection: asyncio.Lock) -> None:
        async with await self.limiter.acquire(1, key=key) as permit:
            self.let_in_after.setdefault(key, len(self.done))
            async with connection:
                await permit.update(self.actual)
                await asyncio.sleep(0)
                self.done.append(key)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        connections = [asyncio.Lock() for _ in range(5)]
        tasks = [loop.create_task(self.request("greedy", connections[i % 4])) for i in range(10_000)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert self.limiter.growers_waiting
        assert self.limiter.queue_size > 8_000
        self.done.clear()
        await asyncio.gather(*tasks, loop.create_task(self.request("modest", connections[4])))
        assert books_are_zero(self.limiter)


async def test_one_underestimated_request_is_not_behind_10_000_of_another_tenant(clock: ManualClock) -> None:
    places = {}
    for share_by_key in (False, True):
        load = Underestimated(semaphore(LIMIT, clock, share_by_key=share_by_key), actual=100)
        await load.run()
        assert load.limiter.statistics().timed_out == 0
        places[share_by_key] = (load.let_in_after["modest"], load.done.index("modest"))
    assert min(places[False]) > 8_000
    let_in, done = places[True]
    assert let_in <= 2, "the growth of a tenant in debt is not waited for"
    assert done <= 8, "its own growth waits for the growth of each other connection, and no more"


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
    assert limiter.statistics().peak_held <= 100 + 50


async def test_without_deficit_growth_goes_before_acquires(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, share_by_key=True)
    over, small = await limiter.acquire(8, key="over"), await limiter.acquire(2, key="small")
    await over.update(11)
    newcomer = await start(limiter.acquire(5, key="newcomer"))
    growth = await start(limiter.update(small, 9))
    over.release()
    await settle()
    assert (growth.done(), newcomer.done()) == (True, False)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 10, 100), (7, 50, 333)])
async def test_keys_that_wait_get_equal_bytes(clock: ManualClock, sizes: tuple[int, ...]) -> None:
    storm = Storm(semaphore(LIMIT, clock, share_by_key=True))
    first = await storm.limiter.acquire(LIMIT)
    for number, size in enumerate(sizes):
        await storm.ask(number, *[size] * (3000 // size))
    storm.held.append(first)
    await storm.free(lambda: storm.total > 6000)
    given: Counter[Hashable] = Counter()
    for key, size in storm.given:
        given[key] += size
        spread = max(given[key] for key in range(3)) - min(given[key] for key in range(3))
        assert spread <= QUANTUM + max(sizes)
    await storm.end()


async def test_growth_is_paid_like_an_honest_request(clock: ManualClock) -> None:
    limiter = semaphore(100, clock, share_by_key=True)
    given: Counter[str] = Counter()
    low_when_honest_has: dict[int, int] = {}

    async def request(key: str, estimate: int) -> None:
        async with await limiter.acquire(estimate, key=key) as permit:
            await permit.update(50)
            given[key] += 50
            low_when_honest_has[given["honest"]] = given["low"]
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(request("honest", 50))
            group.create_task(request("low", 1))
    unseen = 100 * 50  # one pool of estimates is let in before the first of them turns out to be too low
    for honest, low in low_when_honest_has.items():
        assert low <= honest + unseen
    assert books_are_zero(limiter)


async def test_many_keys_of_small_requests_do_not_starve_a_large_one(clock: ManualClock) -> None:
    storm = Storm(semaphore(LIMIT, clock, share_by_key=True))
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


async def test_endless_new_keys_do_not_starve_one_in_deficit(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    pool = await limiter.acquire(LIMIT - 1, key="pool")
    debtor = await limiter.acquire(1, key="debtor")
    waiting = await start(limiter.acquire(1, key="debtor"))
    other = await start(limiter.acquire(1, key="other"))
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


async def test_deficit_of_one_that_waits_alone_does_not_block(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    pool = await limiter.acquire(LIMIT, key="a")
    await pool.update(LIMIT + 500)
    other = await start(limiter.acquire(10, key="b"))
    await pool.update(LIMIT + 900)
    alone = await start(limiter.acquire(10, key="a"))
    assert limiter.statistics().debt >= 400
    pool.release()
    await settle()
    assert (other.done(), alone.done()) == (True, True)


async def test_key_that_leaves_the_queue_finds_its_deficit_again(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    pool = await limiter.acquire(LIMIT, key="pool")
    gone = await start(limiter.acquire(10, key="debtor"))
    others = [await start(limiter.acquire(400, key="other")) for _ in range(2)]
    pool.release()
    await settle()
    assert gone.done()
    await gone.result().update(LIMIT)
    third = await start(limiter.acquire(600, key="other"))
    back = await start(limiter.acquire(10, key="debtor"))
    others[0].result().release()
    others[1].result().release()
    gone.result().release()
    await settle()
    assert third.done()
    assert back.done()
    assert limiter.statistics().debt == 0, "nobody waits, nothing is owed"


async def test_giving_back_what_was_not_used_costs_no_turn(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    moved, pool = await limiter.acquire(10, key="first"), await limiter.acquire(LIMIT - 10, key="pool")
    first = await start(limiter.acquire(LIMIT // 2, key="first"))
    second = await start(limiter.acquire(LIMIT // 2, key="second"))
    limiter.reassign(moved, "heir")
    pool.release()
    await settle()
    assert (first.done(), second.done()) == (True, False)
    first.result().release()
    (await second).release()


async def test_a_cancelled_grant_leaves_its_key_no_deficit(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    kept, pool = await limiter.acquire(100, key="kept"), await limiter.acquire(LIMIT - 100, key="pool")
    leaves = await start(limiter.acquire(LIMIT // 2, key="leaves"))
    stays = await start(limiter.acquire(LIMIT, key="stays"))
    pool.release()
    assert limiter.statistics().debt > 0, "granted, but the task has not run"
    leaves.cancel()
    await settle()
    assert (limiter.held, stays.done(), limiter.statistics().debt) == (100, False, 0)
    kept.release()
    (await stays).release()
    assert books_are_zero(limiter)


@pytest.mark.parametrize("each", [1, 5], ids=["keys of one quantum each", "one key"])
async def test_few_bytes_pass_a_key_in_deficit_without_waiting(clock: ManualClock, each: int) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    await limiter.acquire(LIMIT // 2, key="pool")
    owes = await limiter.acquire(1, key="owes")
    waiting = [await start(limiter.acquire(LIMIT, key=key)) for key in ("head", "owes")]
    await owes.update(1 + 20 * QUANTUM)
    waiting[0].cancel()
    await settle()
    passed = 0
    while limiter.try_acquire(each * QUANTUM, key=f"new {passed}" if each == 1 else "same") is not None:
        passed += each
    assert 15 <= passed <= 25, "a deficit of twenty quanta lets about as many quanta pass"
    assert limiter.statistics().keys_waiting == 1, "a key that passed does not wait"
    waiting[1].cancel()


async def test_deficits_stay_when_the_limit_changes(clock: ManualClock) -> None:
    limiter = semaphore(4 * QUANTA_PER_LIMIT, clock, share_by_key=True)
    pool, debtor = await limiter.acquire(4000, key="pool"), await limiter.acquire(1, key="debtor")
    waits = await start(limiter.acquire(500, key="modest"))
    assert debtor.try_update(61)
    debt = limiter.statistics().debt
    limiter.set_limit(2 * QUANTA_PER_LIMIT)
    assert limiter.statistics().debt == debt > 0
    again = await start(limiter.acquire(1400, key="debtor"))
    late = await start(limiter.acquire(1400, key="late"))
    pool.release()
    await settle()
    assert (waits.done(), late.done(), again.done()) == (True, True, False)


async def test_rounds_that_were_left_are_forgotten_while_the_head_waits(clock: ManualClock) -> None:
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    await limiter.acquire(LIMIT // 2, key="pool")
    debtor = await limiter.acquire(1, key="debtor")
    await start(limiter.acquire(LIMIT - 1, key="head"))
    for size in range(2, 200):
        assert debtor.try_update(size)
        leaves = await start(limiter.acquire(1, key="debtor"))
        leaves.cancel()
        await settle()
    assert limiter._fair_queue is not None
    keys = len(limiter._fair_queue._key_queues)
    assert keys == 2
    assert len(limiter._fair_queue._rounds) == len(limiter._fair_queue._round_heap) <= 2 * keys + 9


async def test_keys_waiting_and_deficit_are_counted(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, share_by_key=True, key_cap_percent=50)
    held = await limiter.acquire(10, key="a")
    tasks = [await start(limiter.acquire(1, key=key)) for key in ("a", "b", "b", None)]
    numbers = limiter.statistics()
    assert (numbers.keys_waiting, numbers.keys_capped, numbers.debt) == (3, 1, 0)
    await held.update(15)
    assert limiter.statistics().debt > 0
    held.release()
    await asyncio.gather(*tasks)
    numbers = limiter.statistics()
    assert (numbers.keys_waiting, numbers.keys_capped, numbers.debt) == (0, 0, 0)


async def test_debtors_nobody_waits_for_are_bounded(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limiter.fair_queue.MAX_IDLE_DEBTORS", 10)
    limiter = semaphore(LIMIT, clock, share_by_key=True)
    permits = [await limiter.acquire(1, key=number) for number in range(100)]
    await limiter.acquire(LIMIT - 100, key="pool")
    await start(limiter.acquire(1, key="waits"))
    for permit in permits:
        assert permit.try_update(50)
        assert permit.try_update(1), "the next may overshoot"
    assert limiter._fair_queue is not None
    assert len(limiter._fair_queue._key_queues) == 1 + 10


async def test_idle_keys_are_forgotten_when_they_have_paid(clock: ManualClock) -> None:
    storm = Storm(semaphore(LIMIT, clock, share_by_key=True))
    await storm.ask("endless", *[10] * 3000)
    for number in range(500):
        await storm.ask(number, 10)
        await storm.free(partial(storm.was_given, number))
        assert storm.limiter._fair_queue is not None
        assert len(storm.limiter._fair_queue._key_queues) <= 2 * 10 // QUANTUM + 4
    await storm.end()


async def test_grant_costs_the_same_however_many_keys_wait(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Counter[str]()
    asked = "limiter.fair_queue.FairQueue.at_cap"
    monkeypatch.setattr(asked, lambda *_: steps.update(["looked at"]))
    for keys in (100, 10_000):
        steps.clear()
        storm = Storm(semaphore(LIMIT, clock, share_by_key=True))
        first = await storm.limiter.acquire(LIMIT)
        for key in range(keys):
            await storm.ask(key, 1 + key * 7 % 400, 3)
        storm.held.append(first)
        await storm.end()
        assert steps["looked at"] <= 25 * 2 * keys


async def test_deadline_of_one_frees_the_turn(clock: ManualClock) -> None:
    limiter = semaphore(10, clock, share_by_key=True)
    await limiter.acquire(5, key="a")
    large = await start(limiter.acquire(8, key="b", timeout_seconds=1.0))
    small = await start(limiter.acquire(2, key="c"))
    assert not small.done()
    clock.advance(1.0)
    with pytest.raises(PermitAcquireTimeout):
        await large
    assert (await small).size == 2
