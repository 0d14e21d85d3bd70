"""Brokers that stop and come back, and ways to them that fail, while clients send and receive: nothing is lost."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pulsar
import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.messages import connect
from tests.pulsar.own_broker import stoppable
from tests.pulsar.proxy_process import host_and_port, run_proxy
from tests.pulsar.standalone import Broker, Kind, Standalone
from tests.pulsar.traffic import MESSAGE_BYTES, traffic
from tests.support.clients.wire import WireClient
from tests.support.faults.proxy import FaultProxy
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

T = TypeVar("T")
TOPIC = "persistent://public/default/topic"
Connect = pb.CommandLookupTopicResponse.Connect


@contextmanager
def clients_of(url: str) -> Iterator[pulsar.Client]:
    client = connect(url)
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

    def lead_to(self, broker: Broker) -> None:
        for way in self.ways:
            way.target_port = host_and_port(broker.service_url)[1]

    def do(self, action: Callable[[], None]) -> None:
        """Do something to a way, on its loop."""
        done: Future[None] = Future()

        def run() -> None:
            action()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(patient(30))


@pytest.fixture
def two_ways() -> Iterator[Ways]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(patient(30))

    async def make() -> list[FaultProxy]:
        return [FaultProxy() for _ in range(2)]

    ways = on_loop(make())
    try:
        yield Ways(loop, ways)
    finally:
        for way in ways:
            on_loop(way.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patient(30))
        loop.close()


@pytest.fixture
def advertised_broker(two_ways: Ways, tmp_path: Path) -> Iterator[Broker]:
    """Give a broker whose topics are, by its own word, found at the first way: what is relayed goes through that."""
    listeners = {"advertisedListeners": f"way:{two_ways.ways[0].url}", "internalListenerName": "way"}
    with stoppable(tmp_path, Kind(keys=listeners), two_ways.lead_to) as standalone:
        yield standalone.broker


def found(wire: WireClient, topic: str) -> pb.CommandLookupTopicResponse:
    """Return the answer that names a broker, or the last refusal: ServiceNotReady is asked again, as clients do.

    On a busy machine the probe of the way that came back may not be over when the request's time for it is.
    """
    until = time.monotonic() + patient(30)
    while True:
        answer = wire.lookup(topic)
        not_ready = answer.response == pb.CommandLookupTopicResponse.Failed and answer.error == pb.ServiceNotReady
        if not not_ready or time.monotonic() > until:
            return answer


# A broker starts here.
@pytest.mark.timeout(300)
def test_ways_to_the_broker_that_fail_lose_no_message(
    two_ways: Ways, advertised_broker: Broker, tmp_path: Path
) -> None:
    advertised, other = two_ways.ways
    with (
        run_proxy(tmp_path, advertised_broker, {"brokerServiceURL": two_ways.service_url}) as proxy,
        clients_of(proxy.service_url) as client,
        WireClient(*host_and_port(proxy.service_url)) as wire,
        traffic(client, TOPIC) as going,
    ):
        wire.connect()
        for turn in range(2):
            # The way of all messages fails, while they are on it: topics are still found, by the other one.
            going.go_on()
            two_ways.do(advertised.refuse)
            answer = found(wire, f"{TOPIC}-{turn}")
            assert (answer.response, answer.brokerServiceUrl) == (Connect, advertised.url), answer
            assert other.carried
            two_ways.do(advertised.listen)
            going.go_on()
            # The other one fails: that hinders neither messages nor who looks for a topic.
            two_ways.do(other.refuse)
            passed = advertised.passed_bytes
            with traffic(client, f"{TOPIC}-{turn}") as more:
                more.go_on()
            going.go_on()
            assert advertised.passed_bytes - passed > 40 * MESSAGE_BYTES
            two_ways.do(other.listen)
            # And all are cut, in the middle of messages.
            two_ways.do(advertised.cut)
            going.go_on()
