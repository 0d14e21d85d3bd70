"""Measure the semaphore alone and print JSON: uncontended cycles, price of a grant, bytes of a waiter.

Every figure is the best of some rounds in one process: the machine is shared, and only the best says what the
code costs. Run: `python -m benchmarks.bench_semaphore [--loop uvloop|asyncio] [--quick]`.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Awaitable, Callable

import uvloop

from benchmarks.micro import options, print_figures
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore

WAITERS = (10_000, 100_000)
QUICK_WAITERS = (1_000,)


def semaphore(limit: int) -> AsyncSemaphore:
    return AsyncSemaphore("bench", limit, max_queue=0, timeout_seconds=3600.0, clock=asyncio.get_running_loop())


async def cycles_a_second(count: int) -> float:
    """Acquire, update and release, one at a time, nobody waiting."""
    limiter = semaphore(1_000_000)
    start = time.perf_counter()
    for _ in range(count):
        permit = await limiter.acquire(1024)
        await limiter.update(permit, 2048)
        limiter.release(permit)
    return count / (time.perf_counter() - start)


async def fill(limiter: AsyncSemaphore, count: int) -> list["asyncio.Task[Permit]"]:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(limiter.acquire(1)) for _ in range(count)]
    await asyncio.sleep(0)
    assert limiter.queue_size == count, f"expected {count} waiters, got {limiter.queue_size}"
    return tasks


async def grant_seconds_at_once(count: int) -> float:
    """Measure one release that lets all waiters in, until the last of them runs (they are served in order)."""
    limiter = semaphore(count)
    permit = await limiter.acquire(count)
    tasks = await fill(limiter, count)
    start = time.perf_counter()
    limiter.release(permit)
    await tasks[-1]
    return (time.perf_counter() - start) / count


async def grant_seconds_one_by_one(count: int) -> float:
    """Measure waiters of which each is let in by the release of the one before."""
    limiter = semaphore(1)
    permit = await limiter.acquire(1)
    loop = asyncio.get_running_loop()

    async def pass_on() -> None:
        limiter.release(await limiter.acquire(1))

    tasks = [loop.create_task(pass_on()) for _ in range(count)]
    await asyncio.sleep(0)
    start = time.perf_counter()
    limiter.release(permit)
    await tasks[-1]
    return (time.perf_counter() - start) / count


async def cancel_seconds(count: int) -> float:
    """Cancel all waiters, from the head on."""
    limiter = semaphore(1)
    permit = await limiter.acquire(1)
    tasks = await fill(limiter, count)
    start = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    seconds = (time.perf_counter() - start) / count
    limiter.release(permit)
    return seconds


async def waiter_bytes(count: int) -> dict[str, float]:
    """Measure a waiter with its future and its deadline; then with the suspended `acquire` around it."""
    limiter = semaphore(1)
    held = await limiter.acquire(1)
    gc.collect()
    tracemalloc.start()
    coroutines = []
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(count):
        coroutine = limiter.acquire(1)
        coroutine.send(None)
        coroutines.append(coroutine)
    queued, _ = tracemalloc.get_traced_memory()
    snapshot = tracemalloc.take_snapshot()
    in_limiter = sum(
        trace.size for trace in snapshot.statistics("filename") if "/limiter/" in trace.traceback[0].filename
    )
    limiter.close()
    for coroutine in coroutines:
        coroutine.close()
    del coroutines, coroutine
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held.release()
    return {
        "waiter": round(in_limiter / count, 1),
        "waiter_and_suspended_acquire": round((queued - before) / count, 1),
        "kept_after_the_wait": round((after - before) / count, 1),
    }


async def best(measure: Callable[[int], Awaitable[float]], count: int, rounds: int) -> float:
    figures = []
    for _ in range(rounds):
        gc.collect()
        figures.append(await measure(count))
    return max(figures) if measure is cycles_a_second else min(figures)


async def measure_all(quick: bool) -> dict[str, object]:
    rounds, waiters = (2, QUICK_WAITERS) if quick else (5, WAITERS)
    micro = 1e6
    return {
        "uncontended_cycles_per_second": round(await best(cycles_a_second, 20_000 if quick else 200_000, rounds)),
        "grant_at_once_us": {n: round(await best(grant_seconds_at_once, n, rounds) * micro, 3) for n in waiters},
        "grant_one_by_one_us": {n: round(await best(grant_seconds_one_by_one, n, rounds) * micro, 3) for n in waiters},
        "cancel_us": {n: round(await best(cancel_seconds, n, rounds) * micro, 3) for n in waiters},
        "bytes_a_waiter": await waiter_bytes(waiters[0]),
    }


def main() -> None:
    arguments = options(__doc__)
    arguments.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    chosen = arguments.parse_args()
    factory = uvloop.new_event_loop if chosen.loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        figures = runner.run(measure_all(chosen.quick))
    print_figures(figures, loop=chosen.loop)


if __name__ == "__main__":
    main()
