"""A changed configuration while clients are connected: every key acts, and has a meaning below what is held."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.app.memory.budget import worst_case
from proxy.config.config import Config
from proxy.config.keys.key import BadValue, Key
from tests.support.clients.async_client import lookup_frame
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    MIB,
    SLOW_READER_RCVBUF,
    TIGHT,
    TOPIC,
    TOPICS,
    Stage,
    direct_taken,
    jammed,
    namespace,
    staged,
    waiting_for_direct,
)
from tests.support.web.web_pages import get, scrape

LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE
TARGETS: Final = {
    "brokerProxyAllowedHostNames": "a.example",
    "brokerProxyAllowedIPAddresses": "10.0.0.0/8",
    "brokerProxyAllowedTargetPorts": "6650",
}
PERMITS: Final = "MemSizePermitsAcquire"
# Live keys whose value here matters: it holds nobody up, fits the other keys, or is looked for. The others get any.
GIVEN: Final = {
    **TARGETS,
    **{f"adaptivePublisherThrottling{kind}HighWatermarkPct": "0.95" for kind in ("Memory", "Backlog")},
    **{f"maxTopicListInFlight{kind}MemSizeMB": "8" for kind in ("Heap", "Direct")},
    **{f"maxTopicListInFlight{kind}{PERMITS}QueueSize": "5" for kind in ("Heap", "Direct")},
    "httpProxyTimeout": "1500", "webServiceAllowedHosts": "127.0.0.1", "webServiceAllowedOrigins": "http://a.example",
    "brokerProxyConnectTimeoutMs": "2500", "brokerProxyReadTimeoutMs": "90000", "handshakeTimeoutMillis": "1500",
    "keepAliveIntervalSeconds": "1800", "topicListRequestTimeoutMillis": "9000", "topicListSharedBy": "role",
    "topicListFairness": "tenant", "topicListWriteStallTimeoutMillis": "7000", "proxyLogLevel": "2",
    "clientSocketSendBufferBytes": "65536", "maxConcurrentInboundConnections": "700",
    "logLevel": "warning", "logLevelByComponent": "net=debug",
    "overloadSignals": "proxy", "overloadMemoryHighWatermark": "0.9",
}  # fmt: skip
ANY: Final = ("true", "false", "7", "9000", "0.6")


def another(key: Key[Any]) -> str:
    """Give a value of a key that is not its default."""
    for text in ANY:
        with suppress(BadValue):
            if key.parse(text) != key.default:
                return key.kind.write(key.parse(text))
    raise AssertionError(f"{key.name} needs a value in GIVEN")


CHANGED: Final = {key.name: GIVEN.get(key.name) or another(key) for key in Config.keys() if key.dynamic}  # noqa: SIM118
LIMITS: Final = {
    "topic_list_heap_memory_limit_bytes": 8 * MIB, "topic_list_direct_memory_limit_bytes": 8 * MIB,
    "spill_limit_bytes": 7 * MIB, "topic_list_heap_queue_max_size": 5, "topic_list_direct_queue_max_size": 5,
}  # fmt: skip


# --- every key ------------------------------------------------------------------------------------


async def test_each_live_key_reaches_a_part(tmp_path: Path) -> None:
    async with staged(topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        before = stage.proxy.config
        after, parts = before.replace(CHANGED), list(stage.proxy.live_parts())
        silent = {
            key.name
            for key in before.differences(after)
            if not any(part.settings(after) != part.settings(after.with_source_of(key, before)) for part in parts)
        }
        # The shutdown reads its keys from the configuration in force.
        assert silent == {"shutdownPreDrainMillis", "shutdownDrainMillis"}


async def configuration(stage: Stage) -> dict[str, Any]:
    """Return the page of the configuration; the budget is always that of what is in force."""
    assert [*stage.proxy.budget.lines] == [*worst_case(stage.proxy.config)]
    return dict(json.loads((await get(stage.proxy.web_port, "/config")).text))


async def test_all_live_keys_change_together_and_are_taken_back(tmp_path: Path) -> None:
    async with staged(topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        client, relayed = await stage.connected(), await stage.relayed()
        await client.topics(namespace(0))
        before = await configuration(stage)
        with stage.changed(**CHANGED):
            page, metrics = await configuration(stage), await scrape(stage.proxy.web_port)
            assert {name: page["keys"][name]["value"] for name in CHANGED} == CHANGED
            assert {page["keys"][name]["origin"] for name in CHANGED} == {"live"}
            assert page["log_level"]["level"] == "warning"
            assert {name: metrics(name) for name in LIMITS} == LIMITS
            assert not {name for name in CHANGED if page["keys"][name]["value"] == before["keys"][name]["value"]}
        assert (await configuration(stage))["keys"] == before["keys"]
        await client.ping()
        await relayed.ping()


async def test_the_budget_follows_a_log_level_that_is_set_by_hand() -> None:
    async with staged() as stage:
        before = stage.proxy.budget.total_bytes
        stage.proxy.live.change("proxyLogLevel", "2")
        assert stage.proxy.budget.total_bytes > before


# --- lowered below what is held -------------------------------------------------------------------


async def test_a_memory_limit_lowered_below_what_is_held_takes_nothing_back_and_newcomers_wait() -> None:
    async with staged() as stage:
        readers = [await direct_taken(stage)]
        readers.append(await stage.connected(SLOW_READER_RCVBUF))
        await readers[1].ask_topics(namespace(1))
        await stage.until(lambda: stage.direct.held >= 2 * LIST_BYTES - 200_000, "two bodies being written")
        held = stage.direct.held
        stage.change(maxTopicListInFlightDirectMemSizeMB=1)
        assert stage.direct.held == held > stage.direct.limit
        newcomer = await waiting_for_direct(stage, 2)
        for reader in readers:
            assert len((await reader.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
        assert len((await newcomer.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


async def test_a_raised_memory_limit_serves_those_who_wait_at_once() -> None:
    async with staged(**TIGHT) as stage:
        jam = await jammed(stage)
        stage.change(maxTopicListInFlightHeapMemSizeMB=20, maxTopicListInFlightDirectMemSizeMB=20)
        for waiting in (jam.b, jam.c, jam.d):
            assert len((await waiting.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


async def test_a_lowered_queue_keeps_those_who_stand_in_it_and_refuses_the_next() -> None:
    async with staged(maxTopicListInFlightDirectMemSizeMB=1) as stage:
        reader = await direct_taken(stage)
        waiting = [await waiting_for_direct(stage, number) for number in (1, 2)]
        stage.change(maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize=1)
        assert (await (await stage.connected()).refused_topics(namespace(3))).error == ServerError.TooManyRequests
        for client in (reader, *waiting):
            assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS


async def test_requests_in_work_above_a_lowered_number_end_well_and_newcomers_are_refused_meanwhile() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        client = await stage.connected()
        await client.send(b"".join(lookup_frame(number, TOPIC) for number in (1, 2, 3)))
        await stage.until(lambda: stage.lookups.held == 3, "three lookups")
        stage.change(maxConcurrentLookupRequests=2)
        await client.send(lookup_frame(4, TOPIC))
        answer = (await client.answer()).lookupTopicResponse
        assert (answer.request_id, answer.error) == (4, ServerError.TooManyRequests)
        gate.set()
        ended = {(await client.answer()).lookupTopicResponse.request_id for _ in range(3)}
        assert ended == {1, 2, 3}
        assert (await client.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


async def test_idle_broker_connections_above_a_lowered_total_are_closed_and_no_more_than_those() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
        assert len(stage.broker.connections) == 2
        stage.change(brokerConnectionsTotal=1)
        await stage.until(lambda: len(stage.broker.connections) == 1, "one left")
        assert (stage.caused("idle"), stage.proxy.broker_side.pool.size) == (1, 1)


async def test_who_waits_for_a_broker_connection_gets_one_when_more_are_allowed() -> None:
    async with staged(brokerConnectionsTotal=1) as stage:
        gate = stage.broker.script.hold(LISTS)
        client, other = await stage.connected(), await stage.connected()
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.outstanding == 1, "a question")
        await other.send(lookup_frame(1, TOPIC))
        await stage.until(lambda: stage.books()["waiting for a broker connection"] == 1, "one that waits")
        stage.change(brokerConnectionsTotal=2)
        assert (await other.answer()).type == pb.BaseCommand.LOOKUP_RESPONSE
        gate.set()
        await client.answer()


# --- clocks and lists -----------------------------------------------------------------------------


async def test_a_shorter_keep_alive_reaches_clients_and_brokers_that_were_there_before() -> None:
    # The clock of these tests ticks every 20 ms: an interval of 20 is 0.4 s.
    async with staged(keepAliveIntervalSeconds=3600) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        pings = stage.broker.record.received[CommandType.PING]
        stage.change(keepAliveIntervalSeconds=1)
        assert (await client.command()).type == pb.BaseCommand.PING
        await stage.until(lambda: stage.broker.record.received[CommandType.PING] > pings, "a PING to the broker")


async def test_a_target_no_longer_allowed_keeps_its_relay_and_gets_no_new_one() -> None:
    async with staged() as stage:
        relayed = await stage.relayed()
        for name, value in TARGETS.items():
            with stage.changed(**{name: value}):
                refused = await stage.client()
                with pytest.raises(AssertionError, match="look the topic up again"):
                    await refused.connect(target=f"127.0.0.1:{stage.broker.port}")
                assert name in stage.details[-1]
            await stage.relayed()
        await relayed.ping()


async def test_a_request_that_has_arrived_keeps_its_clock() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(LISTS)
        early, late = await stage.connected(), await stage.connected()
        await early.ask_topics(namespace(0))
        await stage.until(lambda: stage.outstanding == 1, "a question")
        stage.change(topicListRequestTimeoutMillis=50)
        assert (await late.refused_topics(namespace(1))).error == ServerError.TooManyRequests
        gate.set()
        assert len((await early.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
