"""Events of topic lists in virtual time, each second in the part in which it passed, and events of throttles."""

import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.schema import SCHEMA_VERSION
from limiter.errors import PermitAcquireQueueFull, PermitAcquireTimeout
from limiter.permit import Permit
from limiter.semaphore import AsyncSemaphore
from protocol.command_type import CommandType
from protocol.commands import topic_list_question
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from protocol.slabs import SLAB_BYTES
from protocol.topic_list import heap_size
from proxy.app.memory.budget import RECORD_BYTES
from proxy.clients.requests import ASKED
from proxy.config.config import Config
from proxy.core.errors import BrokerUnavailable, DisconnectCause
from proxy.requests.topic_lists.groups import GroupKey, ListGroup
from proxy.requests.topic_lists.service import ANSWERS
from proxy.telemetry.events.outcomes import close_cause_of, outcome_of
from proxy.telemetry.events.recorder import RecorderSettings, RequestOrigin
from proxy.telemetry.events.throttle_records import ThrottleEvents
from proxy.telemetry.events.timeline import STAGE_FIELDS, Step, Timeline
from tests.support.clients.list_clients import ListClient
from tests.support.each import each
from tests.support.proxies.counted import counted
from tests.support.proxies.list_stage import BROKER, KIB, ListStage, Sizes
from tests.unit.eventlog.test_schema import faults

LIST_BYTES = 10 * KIB
MIB = KIB * KIB
SECOND = 1_000_000


@pytest.fixture
def stage() -> Iterator[ListStage]:
    with closing(ListStage()) as on:
        yield on
    assert not on.events.unlike(on.counters)


def taken(semaphore: AsyncSemaphore, size: int | None = None) -> Permit:
    held = semaphore.try_acquire(semaphore.limit if size is None else size)
    assert held is not None
    return held


def asked(stage: ListStage, members: int = 1, room: int = 1 << 40) -> list[ListClient]:
    clients = [stage.client("alice", room=room) for _ in range(members)]
    for client in clients:
        stage.ask(client)
    stage.step()
    return clients


def begin(stage: ListStage, size: int = LIST_BYTES) -> None:
    (question,) = stage.asked()
    stage.call(question.broker.begin, question, size)
    stage.step()


def go_on(stage: ListStage) -> None:
    (question,) = stage.asked()
    stage.call(question.broker.go_on, question, 1 << 30)
    stage.step()


def seconds(event: dict[str, Any]) -> dict[str, float]:
    return {part: event[part] / SECOND for part in STAGE_FIELDS if event[part]}


# --- where the time goes --------------------------------------------------------------------------


def test_each_wait_of_a_list_stands_in_its_own_part(stage: ListStage) -> None:
    heap, direct = stage.limiter.heap, stage.limiter.direct
    with taken(heap):
        (first,) = asked(stage, room=100)
        stage.advance(0.5)
        asked(stage)
        stage.advance(1.0)
    stage.step()
    stage.advance(1.5)
    waiting = taken(heap, heap.available)
    assert waiting.try_update(waiting.size + 1), "one permit may be over the limit"
    begin(stage)
    stage.advance(2.0)
    waiting.release()
    stage.step()
    stage.advance(2.5)
    with taken(direct):
        go_on(stage)
        stage.advance(3.0)
    stage.step()
    stage.advance(3.5)
    stage.call(first.read)
    stage.step()
    assert [event["outcome"] for event in stage.events.kept] == ["ok", "ok"]
    early, late = sorted(stage.events.kept, key=lambda event: -event["total_us"])
    common = {"upstream_us": 1.5, "heap_update_wait_us": 2, "read_us": 2.5, "direct_wait_us": 3}
    assert seconds(early) == {"heap_wait_us": 1.5, **common, "write_us": 3.5}
    assert seconds(late) == {"heap_wait_us": 1, **common}
    assert (early["coalesced"], late["coalesced"], late["group_size"]) == (False, True, 2)
    assert (early["carries_cost"], late["carries_cost"]) == (True, False)


def test_a_list_that_leaves_slab_by_slab_costs_less_and_less() -> None:
    with closing(ListStage(Sizes(heap=8192 * KIB, direct=8192 * KIB))) as stage:
        stage.call(stage.queues.apply, replace(stage.queues.limits, max_answer_bytes=4096 * KIB))
        (client,) = asked(stage, room=100)
        begin(stage, 4 * SLAB_BYTES)
        go_on(stage)
        whole = stage.limiter.direct.held
        for _ in range(4):
            stage.advance(1)
            stage.call(client.read, SLAB_BYTES)
            stage.step()
        stage.call(client.read)
        stage.step()
        (event,) = stage.events.kept
    assert event["direct_held_us"] == 4 * SECOND
    assert event["direct_byte_us"] == stage.held_byte_us["direct_byte_us"] < 3 * SECOND * whole


# --- how it ends ----------------------------------------------------------------------------------


def refused_at_heap(stage: ListStage) -> None:
    with taken(stage.limiter.heap):
        asked(stage)
        stage.advance(11)


def heap_queue_full(stage: ListStage) -> None:
    stage.limiter.heap.max_queue = 1
    with taken(stage.limiter.heap):
        stage.ask(stage.client("alice"), "t/other")
        stage.step()
        asked(stage)
        stage.call(stage.clients[0].leave)
        stage.step()


def refused_at_growth(stage: ListStage) -> None:
    asked(stage)
    waiting = taken(stage.limiter.heap, stage.limiter.heap.available)
    assert waiting.try_update(waiting.size + 1)
    begin(stage)
    stage.advance(11)
    waiting.release()
    stage.step()


def refused_at_direct(stage: ListStage) -> None:
    with taken(stage.limiter.direct):
        asked(stage)
        begin(stage)
        go_on(stage)
        stage.advance(11)


def silent_broker(stage: ListStage) -> None:
    asked(stage)
    stage.advance(21)
    (question,) = stage.asked()
    stage.call(question.broker.lose)
    stage.step()


def slow_answer(stage: ListStage) -> None:
    asked(stage)
    begin(stage)
    stage.advance(21)
    go_on(stage)


def broker_says_no(stage: ListStage) -> None:
    asked(stage)
    (question,) = stage.asked()
    stage.call(question.broker.fail, question, ServerError.AuthorizationError)
    stage.step()


def too_large_for_the_proxy(stage: ListStage) -> None:
    asked(stage)
    begin(stage, 40 * KIB)
    go_on(stage)


def too_large_for_the_client(stage: ListStage) -> None:
    client = stage.client("alice", max_frame_bytes=100)
    stage.ask(client)
    stage.step()
    begin(stage)
    go_on(stage)


def not_a_namespace(stage: ListStage) -> None:
    stage.ask(stage.client("alice"), "")
    stage.step()


@pytest.mark.parametrize(
    ("flow", "outcome", "part"),
    [
        (refused_at_heap, "timeout", "heap"),
        (heap_queue_full, "queue_full", "heap"),
        (refused_at_growth, "timeout", "heap_update"),
        (refused_at_direct, "timeout", "direct"),
        (silent_broker, "timeout", "upstream"),
        (slow_answer, "timeout", "read"),
        (broker_says_no, "upstream_error", "upstream"),
        (too_large_for_the_proxy, "oversize", "upstream"),
        (too_large_for_the_client, "oversize", "reader"),
        (not_a_namespace, "failed", "client"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_request_that_fails_says_how_and_where(stage: ListStage, flow: Any, outcome: str, part: str) -> None:
    flow(stage)
    event = next(event for event in stage.events.kept if event["outcome"] != "cancelled")
    assert (event["outcome"], event["outcome_stage"]) == (outcome, part)
    assert event["response_bytes"] is None
    if outcome == "oversize":
        assert event["heap_actual_bytes"] >= heap_size(LIST_BYTES)


def test_a_recorder_that_fails_costs_an_event_and_no_answer(stage: ListStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.recorder, "begun", lambda *given: 1 / 0)
    (client,) = asked(stage)
    begin(stage)
    go_on(stage)
    assert len(client.commands()) == 1
    assert counted(stage.counters, "lists_answers", "answered") == 1
    assert [type(report) for report in stage.reports] == [ZeroDivisionError]
    stage.counters[ANSWERS].clear()
    stage.counters[ASKED[CommandType.GET_TOPICS_OF_NAMESPACE]].value = 0


def test_what_is_noted_of_a_request_fits_into_its_share_of_the_budget(stage: ListStage) -> None:
    requests, noted, timelines = 500, [], []
    client = stage.client("alice")
    request = pb.CommandGetTopicsOfNamespace(request_id=1, namespace="t/n")
    groups = [ListGroup(stage.service.groups, GroupKey(), BROKER, "alice", request) for _ in range(requests)]
    tracemalloc.start()
    try:
        for group in groups:
            record = stage.recorder.request(RequestOrigin(client.principal, client.name, client.client_version))
            timeline = record.joined(None, group.broker, topic_list_question(request))
            for step in Step:
                timeline.enter(step)
                stage.loop.now += 0.001
            timelines.append(timeline)
            noted.append(record)
        size = tracemalloc.get_traced_memory()[0] / requests
    finally:
        tracemalloc.stop()
    assert size < RECORD_BYTES
    stage.call(client.leave)
    for record in noted:
        record.cancelled(request, client.cause)
    stage.counters[ASKED[CommandType.GET_TOPICS_OF_NAMESPACE]].value = requests
    stage.counters[ANSWERS]["cancelled"] = requests
    for timeline in timelines:
        timeline.work_over()


def test_limits_are_those_at_the_arrival(stage: ListStage) -> None:
    (client,) = asked(stage)
    changed = {
        "brokerServiceURL": "pulsar://broker",
        "maxTopicListInFlightHeapMemSizeMB": "7",
        "maxTopicListInFlightHeapMemSizePermitsAcquireTimeoutMillis": "1500",
        "topicListSpillDirectory": "lists",
        "topicListSpillMaxMB": "9",
    }
    stage.recorder.apply(RecorderSettings.of(Config.load(overrides=changed)))
    stage.ask(client, "t/other")
    stage.step()
    stage.call(client.leave)
    stage.step()
    told = ("heap_limit_bytes", "heap_timeout_ms", "spill_limit_bytes")
    limits = {event["namespace"]: tuple(event[name] for name in told) for event in stage.events.kept}
    assert limits == {"t/n": (100 * MIB, 25_000, 0), "t/other": (7 * MIB, 1500, 9 * MIB)}


# --- decisions of throttles -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "namespace"), [(None, ""), ("persistent://t/n/a-partition-1", "t/n"), ("x" * 100_000, "")]
)
def test_a_decision_of_a_throttle_is_an_event_of_no_client(stage: ListStage, topic: str | None, namespace: str) -> None:
    decision = {"throttle_by": "adaptive", "throttle_action": "adjust", "throttle_topic": topic}
    ThrottleEvents(stage.recorder).record(decision)
    (event,) = stage.events.kept
    stamp = {"schema_version": SCHEMA_VERSION, "proxy_id": "p", "boot_id": "b", "seq": 1, "dropped_before": 0}
    assert faults(event | stamp) == []
    told = tuple(event[name] for name in ("kind", "outcome", "tenant", "namespace", "client_id"))
    assert told == ("throttle", "ok", namespace.partition("/")[0], namespace, None)
    assert topic is None or topic.startswith(event["throttle_topic"][:100])
    assert len(str(event["throttle_topic"])) < 2000


def test_a_decision_that_cannot_be_recorded_costs_its_event_only(stage: ListStage) -> None:
    nothing: Any = None
    ThrottleEvents(stage.recorder).record(nothing)
    assert (stage.events.kept, len(stage.reports)) == ([], 1)


# --- words for how requests end --------------------------------------------------------------------

NAMED = {
    DisconnectCause.CLIENT_CLOSED: "client_closed",
    DisconnectCause.CONNECTION_RESET: "client_closed",
    DisconnectCause.WRITE_STALLED: "stalled",
    DisconnectCause.READS_TOO_SLOWLY: "slow",
    DisconnectCause.CONNECTION_AGE: "drained",
    DisconnectCause.SHUTDOWN: "shutdown",
    DisconnectCause.ADMIN: "admin",
}


@each("cause", DisconnectCause)
def test_each_cause_of_a_disconnect_is_told_by_its_own_word(cause: DisconnectCause) -> None:
    assert close_cause_of(cause) == NAMED.get(cause, "error")


def test_as_long_as_a_client_is_there_nothing_closed_it() -> None:
    assert close_cause_of(None) is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermitAcquireQueueFull("full", limit=1, held=1, asked=1, queued=1), "queue_full"),
        (PermitAcquireTimeout("late", limit=1, held=1, asked=1, queued=1), "timeout"),
        (TimeoutError(), "timeout"),
        (BrokerUnavailable("gone"), "upstream_error"),
        (RuntimeError("broken"), "failed"),
    ],
)
def test_each_error_has_its_outcome(error: Exception, outcome: str) -> None:
    assert outcome_of(error, under_way=True) == outcome


# --- the times of a group --------------------------------------------------------------------------

US = 1000


@given(
    st.lists(
        st.tuples(st.integers(0, 5_000), st.sampled_from(Step)),
        max_size=20,
    ),
    st.integers(0, 30_000),
    st.integers(0, 30_000),
)
def test_parts_add_up_to_the_life_of_a_member_whenever_it_came_and_left(
    steps: list[tuple[int, Step]], joined: int, stayed: int
) -> None:
    began = now = 10**12
    story = Timeline(lambda: now, Step.JOINED)
    for wait, step in steps:
        now += wait
        story.enter(step)
    until = began + joined + stayed
    took, last = story.took(began + joined, until)
    assert sum(part or 0 for part in took) == until // US - (began + joined) // US
    assert all(part is None or part >= 0 for part in took)
    entered = [part for part, at in zip(story.stages, story.entered_ns, strict=True) if at <= until]
    assert last == entered[-1]
    assert took[last] is not None
