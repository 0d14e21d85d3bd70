"""Several ways to one broker, some of which fail: clients see nothing of it as long as one is left."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.auth.tls import PemFiles, server_context
from tests.support.brokers.embedded.script import Failure, Redirect
from tests.support.brokers.embedded.topics import GeneratedTopics
from tests.support.clients.async_client import LOOPBACK, AsyncClient, schema_frame
from tests.support.faults.proxy import FaultProxy, fault_proxies, service_url
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import TOPIC, Stage, namespace, staged
from tests.support.proxies.targets import refused_target
from tests.support.sockets.names import SystemNames
from tests.support.sockets.ports import free_port
from tests.support.tools import ipv6_loopback

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE
TOPICS = 50


def _store() -> GeneratedTopics:
    return GeneratedTopics(20, TOPICS, 100)


@dataclass
class Ways:
    """A stage whose broker is reached through fault proxies only."""

    stage: Stage
    ways: list[FaultProxy]

    def state(self, name: str) -> int:
        """Count the brokers in that state."""
        return self.stage.proxy.broker_side.brokers.states()[name]

    @property
    def usable(self) -> int:
        """Count the brokers that are not known to have failed: here nothing is probed before it is used."""
        return self.state("up") + self.state("unknown")


@asynccontextmanager
async def several(count: int = 2, **keys: Any) -> AsyncIterator[Ways]:
    async with fault_proxies(count) as ways, staged(_store(), brokerServiceURL=service_url(ways), **keys) as stage:
        for way in ways:
            way.target_port = stage.broker.port
        yield Ways(stage, ways)


async def found(client: AsyncClient) -> None:
    """Look a topic up; the answer must be a broker."""
    answer = await client.lookup(TOPIC)
    assert answer.response == pb.CommandLookupTopicResponse.Connect, answer


async def test_lookups_go_to_all_brokers_in_turn_and_equal_lists_to_one() -> None:
    async with several(3) as ways:
        client = await ways.stage.connected()
        for _ in range(6):
            await found(client)
        assert [way.accepted for way in ways.ways] == [1, 1, 1]
        for _ in range(6):
            await client.topics(namespace(0))
        assert sum(way.accepted for way in ways.ways) == 4


async def test_no_request_fails_while_one_broker_is_left() -> None:
    async with several(3) as ways:
        client = await ways.stage.connected()
        for broken in ways.ways[:2]:
            broken.refuse()
            for number in range(6):
                await found(client)
                await client.topics(namespace(number))
                await client.send(schema_frame(1, TOPIC))
                # No such schema: the broker's own answer, not a word of the proxy about brokers.
                assert "broker" not in (await client.answer()).getSchemaResponse.error_message
        assert ways.state("down") == 2
        assert counted(ways.stage.proxy.counters, "broker_fail_overs") >= 2
        assert not counted_by(ways.stage.proxy.counters, "failed_requests")


@pytest.mark.parametrize("fault", [FaultProxy.cut, FaultProxy.refuse])
async def test_a_list_under_way_is_asked_for_again_of_another_broker(fault: Any) -> None:
    async with several() as ways:
        gate = ways.stage.broker.script.hold(LISTS)
        client = await ways.stage.connected()
        await client.ask_topics(namespace(0))
        await ways.stage.until(lambda: ways.stage.broker.record.topic_questions == 1, "a question")
        (used,) = (way for way in ways.ways if way.carried)
        fault(used)
        await ways.stage.until(lambda: ways.stage.broker.record.topic_questions == 2, "a second question")
        gate.set()
        assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
        assert counted(ways.stage.proxy.counters, "lists_asked_again") == 1
        assert [way.accepted for way in ways.ways] == [1, 1]


async def test_a_lookup_under_way_is_made_again_by_another_broker() -> None:
    async with several() as ways:
        gate = ways.stage.broker.script.hold(CommandType.LOOKUP)
        client = await ways.stage.connected()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(client.lookup(TOPIC))
            await ways.stage.broker.record.seen(CommandType.LOOKUP, 1)
            (used,) = (way for way in ways.ways if way.carried)
            used.refuse()
            await ways.stage.broker.record.seen(CommandType.LOOKUP, 2)
            gate.set()
        assert asked.result().response == pb.CommandLookupTopicResponse.Connect


async def test_a_broker_that_accepts_and_stays_silent_is_passed_over() -> None:
    async with several(brokerProxyConnectTimeoutMs=patient_millis(300)) as ways:
        ways.ways[0].flows.clear()
        client = await ways.stage.connected()
        for _ in range(4):
            await found(client)
        assert not counted_by(ways.stage.proxy.counters, "failed_requests")
        assert counted(ways.stage.proxy.counters, "broker_open_failures", "unreachable") >= 1
        ways.ways[0].flows.set()


async def test_a_broker_that_says_it_is_not_ready_is_passed_over_and_other_refusals_are_not() -> None:
    async with several() as ways:
        ways.stage.broker.script.refuse_connect = Failure(ServerError.ServiceNotReady, "still starting")
        client = await ways.stage.connected()
        answer = await client.lookup(TOPIC)
        assert (answer.error, "still starting" in answer.message) == (ServerError.ServiceNotReady, True)
        ways.stage.broker.script.refuse_connect = None
        await ways.stage.until(lambda: not ways.state("down"), "no broker that is down")
        await found(client)
        # A refused client is no reason to pass a broker over, or one bad token would take all brokers from everybody.
        for connection in list(ways.stage.broker.connections):
            connection.abort()
        ways.stage.broker.script.refuse_connect = Failure(ServerError.AuthorizationError, "not you")
        await ways.stage.until(lambda: not ways.stage.proxy.broker_side.pool.size, "no connection left")
        assert (await client.lookup(TOPIC)).message == "not you"
        assert ways.state("down") == 0


async def test_with_no_broker_left_a_request_is_told_which_and_why() -> None:
    async with several() as ways:
        for way in ways.ways:
            way.refuse()
        client = await ways.stage.connected()
        # Both were up until this one: it was tried on the one, then on the other.
        answer = await client.lookup(TOPIC)
        assert answer.message.endswith("connection refused")
        answer = await client.lookup(TOPIC)
        assert answer.error == ServerError.ServiceNotReady
        assert answer.message.startswith("none of 2 brokers can be reached (brokerServiceURL): ")
        for way in ways.ways:
            assert f"cannot connect to broker {way.address}: connection refused" in answer.message
        ways.ways[1].listen()
        await ways.stage.until(lambda: ways.state("up") == 1, "one broker")
        await found(client)
        assert len((await client.topics(namespace(0))).topics) == TOPICS


async def test_a_redirect_to_a_broker_that_is_gone_begins_the_lookup_anew() -> None:
    async with several() as ways:
        ways.stage.broker.script.redirects.append(Redirect(f"pulsar://{LOOPBACK}:{free_port()}"))
        client = await ways.stage.connected()
        await found(client)
        assert len(ways.stage.broker.record.commands(CommandType.LOOKUP)) == 2


async def test_any_broker_means_one_that_works() -> None:
    async with several() as ways:
        ways.ways[0].refuse()
        for _ in range(3):
            client = await ways.stage.client()
            await client.connect(target="")
        assert ways.ways[1].accepted == 3


# --- names ----------------------------------------------------------------------------------------


@asynccontextmanager
async def headless(*hosts: str, **keys: Any) -> AsyncIterator[Ways]:
    """Run a proxy in front of one name, with a way to the broker on the same port of each address."""
    first = FaultProxy(host=hosts[0])
    ways = [first, *(FaultProxy(host=host, port=first.port) for host in hosts[1:])]
    try:
        url = f"pulsar://brokers.test:{first.port}"
        async with staged(_store(), brokerServiceURL=url, brokerDnsTtlSeconds=1, **keys) as stage:
            for way in ways:
                way.target_port = stage.broker.port
            yield Ways(stage, ways)
    finally:
        for way in ways:
            await way.close()


async def test_brokers_follow_their_name_and_a_resolver_that_fails_takes_none_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = SystemNames(monkeypatch, "127.0.0.2", "127.0.0.3")
    async with headless("127.0.0.2", "127.0.0.3", "127.0.0.4") as ways:
        await ways.stage.until(lambda: ways.usable == 2, "two brokers")
        resolver.error = socket.gaierror(-2, "Name or service not known")
        already = len(resolver.asked)
        await ways.stage.until(lambda: len(resolver.asked) > already, "a question without an answer")
        assert ways.usable == 2
        resolver.error, resolver.addresses = None, ["127.0.0.3", "127.0.0.4"]
        shown = ways.stage.proxy.broker_side.brokers.shown
        await ways.stage.until(lambda: any("127.0.0.4" in str(row["broker"]) for row in shown()), "the new broker")
        assert not any("127.0.0.2" in str(row["broker"]) for row in shown())
        client = await ways.stage.connected()
        for _ in range(4):
            await found(client)
        assert ways.ways[0].accepted == 0
        assert ways.ways[2].accepted


@pytest.mark.parametrize("host", ["::1", LOOPBACK])
async def test_a_name_with_an_address_of_each_family_is_one_broker(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    ipv6_loopback()
    SystemNames(monkeypatch, "::1", LOOPBACK)
    async with headless(host) as ways:
        client = await ways.stage.connected()
        await found(client)
        assert (ways.usable, ways.state("down"), ways.ways[0].accepted) == (1, 0, 1)


# --- checkActiveBrokers ---------------------------------------------------------------------------


async def test_only_brokers_of_the_list_may_be_targets_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = SystemNames(monkeypatch, "127.0.0.2", "127.0.0.3")
    async with headless("127.0.0.2", "127.0.0.3", checkActiveBrokers="true") as ways:
        await ways.stage.until(lambda: ways.usable == 2, "two brokers")
        port = ways.ways[0].port
        for target in (f"brokers.test:{port}", f"127.0.0.3:{port}"):
            client = await ways.stage.client()
            await client.connect(target=target)
        # Another name that leads to one of them (a pod's own), at that address only.
        resolver.addresses = ["127.0.0.9", "127.0.0.3"]
        client = await ways.stage.client()
        await client.connect(target=f"broker-1.brokers.test:{port}")
        assert ways.ways[1].accepted >= 2
        for target in (f"{LOOPBACK}:{ways.stage.broker.port}", f"127.0.0.4:{port}", f"127.0.0.3:{port + 1}"):
            assert await refused_target(ways.stage, target) == "target broker isn't available (checkActiveBrokers)"


# --- with TLS -------------------------------------------------------------------------------------


async def test_brokers_with_tls_are_failed_over_and_redirects_take_the_address_for_tls(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    async with fault_proxies(2) as ways:
        urls = ",".join(f"pulsar+ssl://{way.address}" for way in ways)
        keys = {**files.broker_keys, "brokerServiceURLTLS": urls}
        async with staged(_store(), broker_tls=server_context(), **keys) as stage:
            for way in ways:
                way.target_port = stage.broker.port
            client = await stage.connected()
            stage.broker.script.redirects.append(Redirect(f"pulsar+ssl://{ways[0].address}"))
            answer = await client.lookup(TOPIC)
            assert answer.brokerServiceUrl == answer.brokerServiceUrlTls == stage.broker.service_url
            ways[0].refuse()
            for number in range(4):
                await found(client)
                await client.topics(namespace(number))
            stage.broker.script.redirects.append(Redirect(f"pulsar://{ways[1].address}"))
            assert (await client.lookup(TOPIC)).error == ServerError.MetadataError
            relayed = await stage.client()
            await relayed.connect(target=f"pulsar+ssl://{ways[1].address}")


async def test_a_target_that_only_has_tls_is_refused_where_brokers_have_none() -> None:
    async with several() as ways:
        assert "tlsEnabledWithBroker" in await refused_target(ways.stage, f"pulsar+ssl://{ways.ways[0].address}")
