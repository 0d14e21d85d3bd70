"""Brokers that stop and come back, and ways to them that fail, while clients send and receive: nothing is lost."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pulsar
import pytest

from tests.pulsar.harness import check
from tests.pulsar.process import ProcessFailedError
from tests.pulsar.proxy_process import host_and_port, run_proxy
from tests.pulsar.standalone import Broker, MissingToolError, Standalone
from tests.pulsar.traffic import traffic
from tests.support.fault_proxy import FaultProxy

pytestmark = pytest.mark.pulsar

T = TypeVar("T")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Standalone]:
    """Give a broker that the test may stop."""
    directory = tmp_path / "own-broker"
    directory.mkdir()
    try:
        broker = Standalone(directory, by_docker=check({}) == "docker")
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
    except (MissingToolError, ProcessFailedError) as error:
        pytest.fail(str(error), pytrace=False)


@contextmanager
def clients_of(url: str) -> Iterator[pulsar.Client]:
    client = pulsar.Client(url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


# A broker starts twice here, on a loaded machine in half a minute each.
@pytest.mark.timeout(300)
def test_a_broker_that_restarts_loses_no_message(own_broker: Standalone, tmp_path: Path) -> None:
    topic = "persistent://public/default/restarted"
    with (
        run_proxy(tmp_path, own_broker.broker) as proxy,
        clients_of(proxy.service_url) as client,
        traffic(client, topic) as going,
    ):
        going.go_on()
        own_broker.stop()
        own_broker.start()
        going.go_on()


class Ways:
    """Fault proxies on a loop of their own, in a thread: the clients of these tests block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ways: list[FaultProxy]) -> None:
        self._loop = loop
        self.ways = ways

    @property
    def service_url(self) -> str:
        return "pulsar://" + ",".join(way.address for way in self.ways)

    def do(self, action: Callable[[], None]) -> None:
        """Do something to a way, on its loop."""
        done: Future[None] = Future()

        def run() -> None:
            action()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(30)


@contextmanager
def several_ways(broker: Broker) -> Iterator[Ways]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    async def make() -> list[FaultProxy]:
        return [FaultProxy(host_and_port(broker.service_url)[1]) for _ in range(2)]

    ways = on_loop(make())
    try:
        yield Ways(loop, ways)
    finally:
        for way in ways:
            on_loop(way.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_a_way_to_the_broker_that_fails_is_not_missed(broker: Broker, namespace: str, tmp_path: Path) -> None:
    with several_ways(broker) as ways:
        keys = {"brokerServiceURL": ways.service_url}
        with (
            run_proxy(tmp_path, broker, keys) as proxy,
            clients_of(proxy.service_url) as client,
            traffic(client, f"persistent://{namespace}/topic") as going,
        ):
            for turn, failing in enumerate(ways.ways * 2):
                ways.do(failing.refuse)
                # Each of these is looked up anew, and not by the way that fails.
                with traffic(client, f"persistent://{namespace}/turn-{turn}") as more:
                    more.go_on()
                going.go_on()
                ways.do(failing.listen)
        assert all(way.accepted for way in ways.ways)
