"""A changed configuration while clients are connected: every key acts, and has a meaning below what is held."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.topic_list import ANSWER_OVERHEAD_BYTES
from proxy.app.memory.budget import worst_case_parts
from proxy.app.reload import APPLIED_BY
from proxy.config.config import Config
from proxy.overload.settings import OverloadSettings
from proxy.web.http.origins import OriginRules
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

LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE
ADAPTIVE: Final = "adaptivePublisherThrottling"
DYNAMIC: Final = [key.name for key in Config.keys() if key.dynamic]  # noqa: SIM118


# --- every key ------------------------------------------------------------------------------------


class Effect(NamedTuple):
    """What a key is changed to, where that shows, and what must be seen there then."""

    text: str
    seen: Callable[[Stage], object]
    expected: object


def overload(stage: Stage) -> OverloadSettings:
    """Return the settings that overload control has."""
    control = stage.proxy.overload.control
    assert control is not None
    return control._settings


def _queue(stage: Stage) -> Any:
    (queue,) = stage.proxy.services.requests.topic_lists.queues.all().values()
    return queue


def _sharing(stage: Stage) -> object:
    queue = _queue(stage)
    semaphores = (stage.heap, stage.direct, stage.unproven, queue.in_flight, queue.reservations, queue.unproven)
    shared = [each.share_by_key for each in semaphores]
    return stage.proxy.memory.fairness_keys.fairness, shared


def _pool(stage: Stage) -> Any:
    return stage.proxy.broker_side.pool._limits


def _connect_seconds(stage: Stage) -> object:
    return (
        stage.proxy.broker_side.pool._dialer.timeout_seconds,
        stage.proxy.services.direct_mode._dialer.timeout_seconds,
    )


def _request_seconds(stage: Stage) -> object:
    requests = stage.proxy.services.requests
    return (
        requests.topic_lists.queues.limits.request_timeout_seconds,
        requests.lookups._timeout_seconds,
        requests.schemas._timeout_seconds,
        stage.proxy.services.limits.frame_seconds,
    )


def _read_seconds(stage: Stage) -> object:
    relays = [relay._traffic.read_timeout_seconds for relay in stage.proxy.sessions.all_relays()]  # type: ignore[attr-defined]
    return stage.proxy.services.direct_mode._read_timeout_seconds, relays


def _web(stage: Stage) -> Any:
    assert stage.proxy.web is not None
    return stage.proxy.web


EFFECTS: Final[dict[str, Effect]] = {
    "brokerWebServiceAllowedTargetPorts": Effect("80", lambda s: s.proxy.broker_side.web_validator._ports, {80}),
    "httpProxyTimeout": Effect("1500", lambda s: _web(s)._limits.exchange_seconds, 1.5),
    "httpRequestsLimitEnabled": Effect("true", lambda s: _web(s)._gate.limits.rate_limited, True),
    "httpRequestsMaxPerSecond": Effect("7", lambda s: _web(s)._gate.limits.max_per_second, 7.0),
    "webServiceAllowedHosts": Effect(
        "a.example", lambda s: _web(s)._limits.origins == OriginRules(["a.example"], []), True
    ),
    "webServiceAllowedOrigins": Effect(
        "http://a.example", lambda s: _web(s)._limits.origins == OriginRules(["*"], ["http://a.example"]), True
    ),
    "webServicePageReuseMillis": Effect("500", lambda s: _web(s)._limits.page_reuse_seconds, 0.5),
    "maxConcurrentHttpRequests": Effect("7", lambda s: _web(s)._gate.limits.max_requests, 7),
    "brokerProxyConnectTimeoutMs": Effect("2500", _connect_seconds, (2.5, 2.5)),
    "brokerProxyReadTimeoutMs": Effect("90000", _read_seconds, (90.0, [90.0])),
    "maxConcurrentInboundConnections": Effect("1", lambda s: s.proxy.sessions.refusal("192.0.2.1") is None, False),
    "maxConcurrentInboundConnectionsPerIp": Effect("1", lambda s: s.proxy.sessions.refusal("127.0.0.1") is None, False),
    "maxUnansweredCommandsPerSecond": Effect("7", lambda s: s.proxy.services.limits.unanswered_per_second, 7),
    "maxConcurrentLookupRequests": Effect("7", lambda s: s.lookups.limit, 7),
    "maxOutstandingRequestsPerConnection": Effect("7", lambda s: s.proxy.services.limits.max_outstanding, 7),
    "handshakeTimeoutMillis": Effect("1500", lambda s: s.proxy.sessions.limits.handshake_seconds, 1.5),
    "keepAliveIntervalSeconds": Effect(
        "0",
        lambda s: (
            s.proxy.sessions.limits.keep_alive_seconds,
            s.proxy.services.limits.keep_alive,
            _pool(s).clocks.keep_alive_seconds,
        ),
        (0, False, 0),
    ),
    "maxTopicListInFlightHeapMemSizeMB": Effect(
        "8", lambda s: (s.heap.limit, _queue(s).reservations.limit), (8 * MIB, 4 * MIB)
    ),
    "maxTopicListInFlightDirectMemSizeMB": Effect(
        "8",
        lambda s: (s.direct.limit, s.proxy.services.requests.topic_lists.queues.limits.max_answer_bytes),
        (8 * MIB, 8 * MIB),
    ),
    "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": Effect("5", lambda s: s.heap.timeout_seconds, 0.005),
    "maxTopicListInFlightDirectMemSizePermitsAcquireTimeoutMillis": Effect(
        "5", lambda s: s.direct.timeout_seconds, 0.005
    ),
    "maxTopicListInFlightHeapMemSizePermitsAcquireQueueSize": Effect("5", lambda s: s.heap.max_queue, 5),
    "maxTopicListInFlightDirectMemSizePermitsAcquireQueueSize": Effect("5", lambda s: s.direct.max_queue, 5),
    "topicListRequestTimeoutMillis": Effect("9000", _request_seconds, (9.0,) * 4),
    "topicListInitialHeapPermitBytes": Effect(
        "5000", lambda s: s.proxy.memory.sizes.initial_bytes, 5000 + ANSWER_OVERHEAD_BYTES
    ),
    "topicListMaxAnswerBytes": Effect(
        "5000", lambda s: s.proxy.services.requests.topic_lists.queues.limits.max_answer_bytes, 5000
    ),
    "topicListCoalescingEnabled": Effect(
        "false", lambda s: s.proxy.services.requests.topic_lists.queues.limits.coalescing, False
    ),
    "topicListSharedBy": Effect(
        "role", lambda s: s.proxy.services.requests.topic_lists.queues.limits.shared_by_role, True
    ),
    "topicListFairness": Effect("tenant", _sharing, ("tenant", [True] * 6)),
    "topicListMaxMemoryPercentPerKey": Effect(
        "30", lambda s: s.proxy.services.requests.topic_lists.queues.limits.key_cap_percent, 30
    ),
    "maxHandshakeInFlightMemSizeMB": Effect("8", lambda s: s.handshakes.limit, 8 * MIB),
    "topicListSpillMaxMB": Effect("7", lambda s: s.proxy.spill and s.proxy.spill.space.limit, 7 * MIB),
    "topicListUnprovenReadersMemoryPercent": Effect("25", lambda s: s.unproven.limit, 25 * MIB // 2),
    "topicListWriteStallTimeoutMillis": Effect("7000", lambda s: s.proxy.writes.limits.stall_seconds, 7.0),
    "topicListWriteMinBytesPerSecond": Effect("7000", lambda s: s.proxy.writes.limits.min_bytes_per_second, 7000),
    "watchTopicListLimitEnabled": Effect("false", lambda s: s.proxy.watch_limits.enabled, False),
    "watchTopicListMaxPauseMillis": Effect("70", lambda s: s.proxy.watch_limits.max_pause_seconds, 0.07),
    "topicListMaxOutstandingPerBroker": Effect("3", lambda s: _queue(s).in_flight.limit, 3),
    "topicListBrokerAnswerTimeoutMillis": Effect("900", lambda s: _pool(s).clocks.answer_timeout_seconds, 0.9),
    "brokerConnectionsPerKey": Effect("5", lambda s: _pool(s).per_key, 5),
    "brokerConnectionsTotal": Effect("9", lambda s: _pool(s).total, 9),
    "brokerConnectionIdleMillis": Effect("900000", lambda s: _pool(s).clocks.idle_seconds, 900.0),
    "clientSocketSendBufferBytes": Effect(
        "32768", lambda s: s.proxy.services.send_buffers.settings.buffer_bytes, 32768
    ),
    "clientSocketSendMemoryMB": Effect("7", lambda s: s.proxy.services.send_buffers.memory.limit_bytes, 7 * MIB),
    "shutdownPreDrainMillis": Effect("100", lambda s: s.proxy.config.shutdown_pre_drain_millis, 100),
    "proxyLogLevel": Effect("2", lambda s: s.proxy.relay_log.level, 2),
    "shutdownDrainMillis": Effect("100", lambda s: s.proxy.config.shutdown_drain_millis, 100),
    "logLevel": Effect("warning", lambda s: s.proxy.log.level, "warning"),
    "logLevelByComponent": Effect(
        "net=debug, web=error", lambda s: (s.proxy.log.of("net").level, s.proxy.log.of("web").level), ("debug", "error")
    ),
    "connectionLogPercent": Effect("100", lambda s: s.proxy.connection_log.logs(1), True),
    "connectionLogMaxLinesPerSecond": Effect("7", lambda s: s.proxy.connection_log._rate.lines_a_second, 7),
    "overloadSignals": Effect("proxy", lambda s: overload(s).watches_brokers, False),
    "overloadSampleMillis": Effect("250", lambda s: overload(s).sample_seconds, 0.25),
    "overloadThrottleEnabled": Effect("true", lambda s: overload(s).threshold.enabled, True),
    "overloadThrottleObserveOnly": Effect("true", lambda s: overload(s).threshold.observe_only, True),
    "overloadMemoryHighWatermark": Effect("0.9", lambda s: overload(s).threshold.marks.high, 0.9),
    "overloadMemoryLowWatermark": Effect("0.5", lambda s: overload(s).threshold.marks.low, 0.5),
    "overloadMemoryHardWatermark": Effect("0.97", lambda s: overload(s).threshold.hard, 0.97),
    "overloadDripMillis": Effect("4000", lambda s: overload(s).threshold.drip_seconds, 4.0),
    "overloadMaxPauseMillis": Effect("15000", lambda s: overload(s).threshold.max_pause_seconds, 15.0),
    f"{ADAPTIVE}Enabled": Effect("true", lambda s: overload(s).adaptive_enabled, True),
    f"{ADAPTIVE}ObserveOnly": Effect("true", lambda s: overload(s).adaptive.observe_only, True),
    f"{ADAPTIVE}IntervalMs": Effect("2000", lambda s: overload(s).adaptive.interval_seconds, 2.0),
    f"{ADAPTIVE}MemoryHighWatermarkPct": Effect("0.9", lambda s: overload(s).adaptive.memory.high, 0.9),
    f"{ADAPTIVE}MemoryLowWatermarkPct": Effect("0.5", lambda s: overload(s).adaptive.memory.low, 0.5),
    f"{ADAPTIVE}BacklogHighWatermarkPct": Effect("0.95", lambda s: overload(s).adaptive.backlog.high, 0.95),
    f"{ADAPTIVE}BacklogLowWatermarkPct": Effect("0.5", lambda s: overload(s).adaptive.backlog.low, 0.5),
    f"{ADAPTIVE}BacklogLimitBytes": Effect("4096", lambda s: overload(s).adaptive.backlog_limit_bytes, 4096),
    f"{ADAPTIVE}MinRateFactor": Effect("0.2", lambda s: overload(s).adaptive.min_rate_factor, 0.2),
    f"{ADAPTIVE}MaxRateChangeFactor": Effect("0.5", lambda s: overload(s).adaptive.max_rate_change, 0.5),
    f"{ADAPTIVE}SharesByBytes": Effect("true", lambda s: overload(s).adaptive.shares_by_bytes, True),
    f"{ADAPTIVE}Topics": Effect("other", lambda s: "topic" in overload(s).adaptive.topics, False),
    f"{ADAPTIVE}ExceptTopics": Effect("top*", lambda s: "topic" in overload(s).adaptive.topics, False),
    "publishThrottleMaxPauseMillis": Effect("2500", lambda s: s.proxy.relay_engines.slots.books.max_pause_millis, 2500),
    f"{ADAPTIVE}PerTopicMetricsEnabled": Effect("true", lambda s: overload(s).shows_topics, True),
}
# What a client sees of these.
TARGETS: Final = {
    "brokerProxyAllowedHostNames": "a.example",
    "brokerProxyAllowedIPAddresses": "10.0.0.0/8",
    "brokerProxyAllowedTargetPorts": "6650",
}
# With both throttles, each key of overload control has somebody to tell.
THROTTLES: Final = ("overloadThrottleEnabled", f"{ADAPTIVE}Enabled")


def test_the_dynamic_keys_are_those_with_an_entry_and_an_effect_here() -> None:
    assert {key.name for key in APPLIED_BY} == {*EFFECTS, *TARGETS} == set(DYNAMIC)


def needed(name: str) -> dict[str, object]:
    """Return what else must be configured for a key to have an effect."""
    if name.startswith(("overload", ADAPTIVE, "publishThrottle")):
        return dict.fromkeys((key for key in THROTTLES if key != name), "true")
    # A sum bounds nothing where all buffers are small.
    return {"clientSocketSendBufferBytes": "65536"} if name == "clientSocketSendMemoryMB" else {}


async def test_a_changed_key_takes_effect_and_is_taken_back(tmp_path: Path) -> None:
    wrong = []
    async with staged(topicListSpillDirectory=str(tmp_path / "lists")) as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await stage.relayed()
        for name, (text, seen, expected) in EFFECTS.items():
            with stage.changed(**needed(name)):
                before = seen(stage)
                with stage.changed(**{name: text}):
                    during = seen(stage)
                after = seen(stage)
            if [value == expected for value in (before, during, after)] != [False, True, False]:
                wrong.append(f"{name}={text}: {before} before, {during} then, {after} after, expected {expected}")
        assert stage.proxy.counters.shared.internal_errors == {}
    assert not wrong, "\n".join(wrong)


async def test_the_budget_follows_the_limits() -> None:
    changes = {
        "maxTopicListInFlightHeapMemSizeMB": 4,
        "brokerConnectionsTotal": 4,
        "maxConcurrentLookupRequests": 4,
        "topicListFairness": "tenant",
        "proxyLogLevel": 1,
    }
    async with staged() as stage:
        for name, value in changes.items():
            before = stage.proxy.counters.budget_bytes
            stage.change(**{name: value})
            assert stage.proxy.counters.budget_bytes != before, name
            assert stage.proxy.counters.budget_parts == worst_case_parts(stage.proxy.config), name


async def test_the_budget_follows_a_log_level_that_is_set_by_hand() -> None:
    async with staged() as stage:
        before = stage.proxy.counters.budget_bytes
        stage.proxy.live.change("proxyLogLevel", "2")
        assert stage.proxy.counters.budget_bytes > before
        assert stage.proxy.counters.budget_parts == worst_case_parts(stage.proxy.config)


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


async def test_a_client_above_a_lowered_number_of_requests_is_read_again_when_it_is_below() -> None:
    async with staged(maxOutstandingRequestsPerConnection=6) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        client = await stage.connected()
        await client.send(b"".join(lookup_frame(number, TOPIC) for number in range(1, 13)))
        session = stage.session_of(client)
        await stage.until(lambda: session._requests.outstanding == 6, "six requests")
        stage.change(maxOutstandingRequestsPerConnection=2)
        most: list[int] = []
        serve = session._requests.serve

        def watched(*arguments: Any) -> bool:
            most.append(session._requests.outstanding)
            return serve(*arguments)

        watch = pytest.MonkeyPatch()
        watch.setattr(type(session._requests), "serve", lambda _, *arguments: watched(*arguments))
        try:
            gate.set()
            assert len([await client.answer() for _ in range(12)]) == 12
        finally:
            watch.undo()
        assert len(most) == 6
        assert max(most) == 1


async def test_a_client_that_may_have_more_requests_is_read_on_at_once() -> None:
    async with staged(maxOutstandingRequestsPerConnection=1) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        client = await stage.connected()
        await client.send(b"".join(lookup_frame(number, TOPIC) for number in (1, 2, 3)))
        session = stage.session_of(client)
        await stage.until(lambda: session._requests.outstanding == 1 and not session.reading, "one request")
        stage.change(maxOutstandingRequestsPerConnection=3)
        await stage.until(lambda: session._requests.outstanding == 3, "three requests")
        gate.set()
        assert len([await client.answer() for _ in range(3)]) == 3


async def test_a_broker_connection_too_many_gets_no_question_and_is_closed_when_it_has_none() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(LISTS)
        clients = [await stage.connected() for _ in range(2)]
        for number, client in enumerate(clients):
            await client.ask_topics(namespace(number))
            await stage.until(lambda: stage.outstanding == number + 1, "a question")  # noqa: B023
        # The second question opens the second connection.
        await stage.until(lambda: len(stage.proxy.broker_side.pool._keys) == 2, "two connections")
        first, second = next(iter(stage.proxy.broker_side.pool._connections.values()))
        third = await stage.connected()
        await third.ask_topics(namespace(2))
        await stage.until(lambda: second.outstanding == 1, "a question on the second connection")
        stage.change(brokerConnectionsPerKey=1)
        fourth = await stage.connected()
        await fourth.ask_topics(namespace(3))
        await stage.until(lambda: first.outstanding == 3, "a question on the first connection")
        assert second.outstanding == 1
        gate.set()
        for client in (*clients, third, fourth):
            assert len((await client.answer()).getTopicsOfNamespaceResponse.topics) == TOPICS
        await stage.until(lambda: list(stage.proxy.broker_side.pool._keys) == [first], "one connection left")


async def test_idle_broker_connections_above_a_lowered_total_are_closed_and_no_more_than_those() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.topics(namespace(0))
        await client.lookup(TOPIC)
        assert len(stage.proxy.broker_side.pool._keys) == 2
        stage.change(brokerConnectionsTotal=1, brokerConnectionsPerKey=1)
        await stage.until(lambda: stage.caused("idle") == 1, "one closed")
        await stage.until(lambda: len(stage.proxy.broker_side.pool._keys) == 1, "one left")
        for _ in range(3):
            stage.proxy.broker_side.pool.tick(asyncio.get_running_loop().time())
        assert stage.caused("idle") == 1


async def test_who_waits_for_a_broker_connection_gets_one_when_more_are_allowed() -> None:
    async with staged(brokerConnectionsTotal=1, brokerConnectionsPerKey=1) as stage:
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


async def test_a_client_pinged_just_before_the_interval_shrinks_has_a_whole_one_to_answer() -> None:
    async with staged(keepAliveIntervalSeconds=3600) as stage:
        client = await stage.connected()
        session = stage.session_of(client)
        for _ in range(2):
            session.tick(0.0)
        assert (await client.command()).type == pb.BaseCommand.PING
        stage.change(keepAliveIntervalSeconds=3599)
        session.tick(0.0)
        assert session.cause is None
        await client.ping()


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
