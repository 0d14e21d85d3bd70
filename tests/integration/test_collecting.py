"""When the garbage collector looks at everything: once a minute, but not where it costs much and finds little."""

from typing import Any

from proxy.app.cycles import COLLECT_AT_LAST_SECONDS, COLLECT_SECONDS, FEW_LISTS, MANY_LEFT, CycleCollection
from proxy.core.errors import DisconnectCause
from tests.support.proxies.proxy_under_test import staged


class Collector:
    """Notes its looks, and the lists that waited then."""

    def __init__(self, registry: Any) -> None:
        self.registry = registry
        self.looks: list[int] = []

    def collect(self) -> int:
        self.looks.append(len(self.registry))
        return 0

    def freeze(self) -> None: ...

    def unfreeze(self) -> None: ...


async def test_the_look_at_everything_waits_while_lists_do_and_few_have_left() -> None:
    async with staged() as stage:
        proxy, now = stage.proxy, 1000.0
        registry: Any = proxy.services.requests.topic_lists.groups.registry
        collector = Collector(registry)
        cycles = CycleCollection(proxy.sockets, proxy.sessions, proxy.counters, proxy.services.requests, now, collector)

        def after(seconds: float) -> list[int]:
            nonlocal now
            now += seconds
            cycles.tick(now)
            return collector.looks

        assert after(COLLECT_SECONDS) == [0]
        waiting = [f"group {number}" for number in range(FEW_LISTS + 1)]
        for group in waiting:
            registry.add(group, 0.0)
        assert after(COLLECT_AT_LAST_SECONDS - 1) == [0]
        assert after(1) == [0, FEW_LISTS + 1]
        for _ in range(MANY_LEFT):
            proxy.counters.shared.disconnected(DisconnectCause.CLIENT_CLOSED)
        assert after(COLLECT_SECONDS) == [0, FEW_LISTS + 1, FEW_LISTS + 1]
        assert len(after(COLLECT_SECONDS)) == 3
        registry.remove(waiting[0])
        assert after(0)[3:] == [FEW_LISTS]
        for group in waiting[1:]:
            registry.remove(group)
