"""Clients that leave by the thousand: what their requests held in the queue is free in the tick of the close."""

import asyncio
import math

from limiter.semaphore import AsyncSemaphore
from proxy.core.tasks import TaskScope

CLIENTS = 5000
REQUESTS_EACH = 2


def _unexpected(error: BaseException) -> None:
    raise AssertionError(f"a request crashed: {error!r}")


async def test_each_client_that_leaves_frees_its_slots_before_the_next_tick() -> None:
    loop = asyncio.get_running_loop()
    limiter = AsyncSemaphore("heap", 1, max_queue=CLIENTS * REQUESTS_EACH, timeout_seconds=math.inf, clock=loop)
    held = limiter.try_acquire(1)
    assert held is not None
    served = []

    async def request(client: int) -> None:
        with await limiter.acquire(1, key=client):
            served.append(client)

    scopes = [TaskScope(_unexpected) for _ in range(CLIENTS)]
    for client, scope in enumerate(scopes):
        for _ in range(REQUESTS_EACH):
            scope.start(request(client))
    await asyncio.sleep(0)
    assert limiter.statistics().queue_size == CLIENTS * REQUESTS_EACH

    left = []
    for scope in scopes[1:]:
        scope.cancel()  # no await from here to the look at the queue: all in one tick
        left.append(limiter.statistics().queue_size)
    assert left == [REQUESTS_EACH * (CLIENTS - gone) for gone in range(1, CLIENTS)]

    held.release()
    await asyncio.gather(*(scope.emptied() for scope in scopes))
    assert served == [0, 0]
    assert (limiter.statistics().queue_size, limiter.statistics().held) == (0, 0)
