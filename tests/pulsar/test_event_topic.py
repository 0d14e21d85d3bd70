"""Events in a topic of a real broker: they arrive, and whether they stay is known; a broker may go and come back."""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pulsar
import pytest

from eventlog.topic_admin import TopicAdmin, topic_name
from tests.pulsar.admin import Admin
from tests.pulsar.event_log import events_in, running_log
from tests.pulsar.messages import connect
from tests.pulsar.standalone import Broker, Standalone
from tests.support.clients.async_client import eventually

pytestmark = pytest.mark.pulsar


@pytest.fixture
def direct(broker: Broker) -> Iterator[pulsar.Client]:
    """Give a client of the broker itself."""
    client = connect(broker.service_url)
    yield client
    client.close()


def keys(broker: Broker, topic: str) -> dict[str, str]:
    return {
        "brokerServiceURL": broker.service_url,
        "brokerWebServiceURL": broker.admin_url,
        "eventLogTopic": topic,
    }


@pytest.mark.parametrize("partitions", [0, 3])
async def test_events_arrive_and_the_topic_keeps_them(
    broker: Broker, admin: Admin, direct: pulsar.Client, namespace: str, topic: str, partitions: int
) -> None:
    admin.create_topic(topic, partitions)
    admin.keep_messages(namespace)
    assert TopicAdmin((broker.admin_url,)).keeping(topic_name(topic)).keeps
    async with running_log(**keys(broker, topic)) as log:
        await log.said("the topic keeps events")
        assert log.log.topic_keeps is True
        # Block after block, so that each partition has its turn.
        for number in range(1, 5):
            log.give(500)
            await log.written(500 * number)
    names = direct.get_topic_partitions(topic)
    assert len(names) == max(1, partitions)
    found = [event for name in names for event in await asyncio.to_thread(events_in, direct, name, 1)]
    assert sorted(event["seq"] for event in found) == list(range(1, 2001))
    assert {(event["proxy_id"], event["boot_id"]) for event in found} == {("proxy", log.log.boot_id)}
    assert log.numbers.dropped == log.numbers.errors == 0


async def test_topic_that_would_lose_events_is_warned_about(broker: Broker, namespace: str, topic: str) -> None:
    async with running_log(**keys(broker, topic)) as log:
        line = await log.said("the topic would lose events")
        log.give(10)
        await log.written(10)
    assert line["level"] == "warning"
    assert line["change"] == f"retention and inactive-topic policy of {namespace} (pulsar-admin namespaces)"
    assert log.log.topic_keeps is False


async def test_topic_that_takes_no_more_costs_events_that_are_counted(
    broker: Broker, admin: Admin, namespace: str, topic: str
) -> None:
    admin.create_topic(topic)
    async with running_log(**keys(broker, topic)) as log:
        log.give(5)
        await log.written(5)
        admin.call("POST", f"/admin/v2/persistent/{namespace}/topic/terminate")
        log.give(5)
        await eventually(lambda: log.numbers.errors, "a failure")
    assert (log.numbers.written, log.numbers.dropped) == (5, 5)
    assert "terminated" in log.lines("events cannot be written")[0]["detail"]


# The broker starts twice.
@pytest.mark.timeout(240)
async def test_broker_that_was_away_gets_all_that_fitted_and_is_told_of_the_rest(own_broker: Standalone) -> None:
    topic = "persistent://public/default/events"
    settings = keys(own_broker.broker, topic) | {"eventLogBufferMB": "1"}
    await asyncio.to_thread(Admin(own_broker.broker.admin_url).keep_messages, "public/default")
    async with running_log(**settings) as log:
        log.give(100)
        await log.written(100)
        await asyncio.to_thread(own_broker.stop)
        while not log.numbers.dropped:
            log.give(50)
            await asyncio.sleep(0)
        # Not by another thread: a process ends with the thread that started it.
        own_broker.start()
        await log.written(log.put - log.numbers.dropped)
        log.give(1)
    client = connect(own_broker.broker.service_url)
    try:
        events = await asyncio.to_thread(partial(events_in, client, topic, log.numbers.written))
    finally:
        client.close()
    assert len(events) == log.numbers.written
    seqs = [0, *(event["seq"] for event in events)]
    gaps = [after - before - 1 for before, after in pairwise(seqs)]
    assert [event["dropped_before"] for event in events] == gaps
    assert seqs[-1] == log.put
    assert sum(gaps) == log.numbers.dropped
