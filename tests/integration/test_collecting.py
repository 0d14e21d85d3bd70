"""When the garbage collector looks at everything: once a minute, but not where it costs much and finds little."""

import gc
from math import ceil

import pytest

from proxy.app.cycles import COLLECT_AT_LAST_SECONDS, COLLECT_SECONDS, FEW_LISTS, MANY_LEFT
from proxy.core.errors import DisconnectCause
from tests.support.proxies.proxy_under_test import staged


async def test_the_look_at_everything_waits_while_lists_do_and_few_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        proxy, looks = stage.proxy, []
        registry = proxy.services.requests.topic_lists.groups.registry
        monkeypatch.setattr(gc, "collect", lambda: looks.append(len(registry)))
        # A whole number: the sums of the times below are exact.
        now = float(ceil(proxy.loop.time()))

        def after(seconds: float) -> None:
            nonlocal now
            now += seconds
            proxy._cycles.tick(now)

        after(COLLECT_SECONDS)
        waiting = [f"group {number}" for number in range(FEW_LISTS + 1)]
        for group in waiting:
            registry.add(group, 0.0)  # type: ignore[arg-type]
        after(COLLECT_AT_LAST_SECONDS - 1)
        assert looks == [0]
        after(1)
        assert looks == [0, FEW_LISTS + 1]
        for _ in range(MANY_LEFT):
            proxy.counters.shared.disconnected(DisconnectCause.CLIENT_CLOSED)
        after(COLLECT_SECONDS)
        assert looks == [0, FEW_LISTS + 1, FEW_LISTS + 1]
        after(COLLECT_SECONDS)
        assert len(looks) == 3
        registry.remove(waiting[0])  # type: ignore[arg-type]
        after(0)
        assert looks[3:] == [FEW_LISTS]
        for group in waiting[1:]:
            registry.remove(group)  # type: ignore[arg-type]
