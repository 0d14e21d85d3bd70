"""When the garbage collector looks at everything: once a minute, but not in the middle of a storm."""

import gc

import pytest

from proxy.app import COLLECT_AT_LAST_SECONDS, COLLECT_SECONDS, FEW_LISTS
from tests.support.proxy_under_test import staged


async def test_a_storm_of_lists_that_wait_puts_the_look_at_everything_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        proxy, looks = stage.proxy, []
        roll = proxy.services.requests.topic_lists.groups.roll
        monkeypatch.setattr(gc, "collect", lambda: looks.append(len(roll)))
        now = proxy.loop.time()

        def after(seconds: float) -> None:
            nonlocal now
            now += seconds
            proxy._collect_cycles(now)

        after(COLLECT_SECONDS)
        waiting = [f"group {number}" for number in range(FEW_LISTS + 1)]
        for group in waiting:
            roll.add(group, 0.0)  # type: ignore[arg-type]
        after(COLLECT_AT_LAST_SECONDS - 1)
        assert looks == [0]
        after(1)
        assert looks == [0, FEW_LISTS + 1]
        roll.remove(waiting[0])  # type: ignore[arg-type]
        after(COLLECT_SECONDS)
        assert looks == [0, FEW_LISTS + 1, FEW_LISTS]
        for group in waiting[1:]:
            roll.remove(group)  # type: ignore[arg-type]
