"""Brokers that stop and come back, and ways to them that fail, while clients send and receive: nothing is lost."""

import time
from pathlib import Path

import pytest

from protocol.pb import PulsarApi_pb2 as pb
from tests.pulsar.messages import connect
from tests.pulsar.proxy_process import host_and_port, run_proxy
from tests.pulsar.standalone import Standalone
from tests.pulsar.traffic import MESSAGE_BYTES, traffic
from tests.pulsar.ways import Ways
from tests.support.clients.wire import WireClient
from tests.support.patience import patient

# A broker may start twice here, on a loaded machine in half a minute each.
pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(300)]

TOPIC = "persistent://public/default/topic"
Connect = pb.CommandLookupTopicResponse.Connect


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


def test_ways_to_the_broker_that_fail_and_its_restart_lose_no_message(
    two_ways: Ways, own_broker: Standalone, tmp_path: Path
) -> None:
    # What is relayed goes through the first way: there the broker says that its topics are.
    advertised, other = two_ways.ways
    url = f"pulsar://{advertised.address},{other.address}"
    with (
        run_proxy(tmp_path, own_broker.broker, {"brokerServiceURL": url}) as proxy,
        WireClient(*host_and_port(proxy.service_url)) as wire,
    ):
        client = connect(proxy.service_url)
        wire.connect()
        with traffic(client, TOPIC) as going:
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
            own_broker.stop()
            own_broker.start()
            going.go_on()
        client.close()
