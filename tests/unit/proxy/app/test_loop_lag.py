import asyncio

import pytest

from proxy.app.metrics.process import PERIOD_SECONDS, WINDOW_SECONDS, LoopLag
from proxy.core.counters import Counters
from tests.support.loops.loops import VirtualLoop, run_virtual


def test_a_step_that_takes_long_is_seen_as_lag_and_forgotten_after_the_window() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        lag = LoopLag(loop, Counters())
        lag.start()
        await asyncio.sleep(PERIOD_SECONDS / 2)
        loop.stand_still(2.0)
        await asyncio.sleep(PERIOD_SECONDS / 2)
        # Due half a period after the step began.
        assert lag.durations.quantiles(1.0)[0] == pytest.approx((2.0 - PERIOD_SECONDS / 2) * 1000)
        await asyncio.sleep(WINDOW_SECONDS + 1)
        assert lag.durations.quantiles(1.0)[0] < 1e-6
        lag.stop()
        lag.stop()
        samples = lag.durations.count
        await asyncio.sleep(10)
        assert lag.durations.count == samples

    run_virtual(main())
