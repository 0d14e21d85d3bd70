"""Test the pair of semaphores: settings and the end are for both."""

import pytest

from limiter import AsyncDualMemoryLimiter, PermitAcquireAlreadyClosed
from tests.support.loops.clock import ManualClock
from tests.unit.limiter.harness import semaphore


async def test_settings_and_close_are_for_both(clock: ManualClock) -> None:
    limiter = AsyncDualMemoryLimiter(semaphore(100, clock), semaphore(50, clock))
    for share_by_key in (True, False):
        limiter.set_sharing(share_by_key, 50)
        assert limiter.heap.share_by_key is limiter.direct.share_by_key is share_by_key
    limiter.close()
    for memory in (limiter.heap, limiter.direct):
        with pytest.raises(PermitAcquireAlreadyClosed):
            await memory.acquire(1)
