"""The clock of a proxy goes on, whatever one of its parts or one connection does."""

import pytest

from proxy.brokers.clocks import BrokerClocks
from proxy.brokers.connection import BrokerConnection
from proxy.core.counters import INTERNAL_ERRORS
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged


async def test_a_part_that_raises_each_second_stops_no_other_part(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        proxy, later = stage.proxy, list[float]()

        def fail(now: float) -> None:
            raise RuntimeError("crash of a part of the clock")

        monkeypatch.setattr(proxy.live, "tell", fail)
        monkeypatch.setattr(proxy.reports.tenants, "turn", later.append)
        internal = proxy.counters[INTERNAL_ERRORS]
        await stage.until(lambda: internal["clock"] >= 3 and len(later) >= 3, "the clock goes on")
        monkeypatch.undo()
        internal.clear()


async def test_a_broker_connection_whose_tick_raises_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
        ticked, usual = list[BrokerConnection](), BrokerConnection.tick

        def tick(connection: BrokerConnection, now: float, clocks: BrokerClocks) -> None:
            ticked.append(connection)
            if connection is ticked[0]:
                raise RuntimeError("crash of a connection's clock")
            usual(connection, now, clocks)

        monkeypatch.setattr(BrokerConnection, "tick", tick)
        await stage.until(lambda: ticked and not ticked[0].open and ticked[-1] is not ticked[0], "the others go on")
        stage.expected_internal_errors = {"broker_connection": 1}
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
