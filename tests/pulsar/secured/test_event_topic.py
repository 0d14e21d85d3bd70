"""The event log's topic on a broker that asks who writes, with each kind of credentials and over TLS."""

import asyncio

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.event_log import events_in, running_log
from tests.pulsar.secured.clients import authentication, client
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker, proxy_keys

pytestmark = pytest.mark.pulsar


def keys(credentials: Credentials, broker: SecuredBroker, topic: str, tls: bool, **more: str) -> dict[str, str]:
    given = {
        **proxy_keys(credentials, broker),
        "brokerServiceURL": broker.service_url,
        "brokerWebServiceURL": broker.admin_url,
        "tlsEnabledWithBroker": str(tls).lower(),
        "eventLogTopic": topic,
        **more,
    }
    # Of the proxy's own ports there are none here.
    return {key: value for key, value in given.items() if not key.startswith("tls") or key == "tlsEnabledWithBroker"}


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_events_are_written_with_credentials_of_their_own(
    broker: SecuredBroker, credentials: Credentials, namespace: str, tls: bool
) -> None:
    topic = f"persistent://{namespace}/events"
    # The proxy's own role is in proxyRoles: it may act for others, and write nothing itself.
    log_role = {
        "eventLogTopicAuthenticationPlugin": "token",
        "eventLogTopicAuthenticationParameters": f"token:{credentials.token('admin')}",
    }
    async with running_log(**keys(credentials, broker, topic, tls, **log_role)) as log:
        log.give(50)
        await log.written(50)
        # The admin service was asked with the same credentials: it says what is in force.
        await log.said("the topic would lose events")
        with client(broker.service_url, credentials, authentication(credentials, "token", "alice")) as alice:
            events = await asyncio.to_thread(events_in, alice, topic, 50)
    assert [event["seq"] for event in events] == list(range(1, 51))


async def test_refused_credentials_cost_events_and_nothing_else(
    broker: SecuredBroker, credentials: Credentials, admin: Admin, namespace: str
) -> None:
    topic = f"persistent://{namespace}/events"
    bob = {"brokerClientAuthenticationParameters": f"token:{credentials.token('bob')}"}
    async with running_log(**keys(credentials, broker, topic, False, **bob)) as log:
        log.give(10)
        line = await log.said("events cannot be written")
        await log.said("not known whether the topic keeps events")
    assert "authorization" in line["detail"] or "authentication" in line["detail"]
    assert log.numbers.dropped == 10
    assert credentials.token("bob") not in str(log.told.said)
