"""The event log of a running proxy: one event for each topic list, whatever became of it, and no names in any.

Whatever holds for every event is judged by the stage of every integration test (`tests.support.proxies.events`).
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from protocol.command_type import CommandType
from protocol.commands import frame
from protocol.errors import ServerError
from protocol.field_walker import MAX_ENTRIES
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.core.errors import DisconnectCause
from tests.integration.test_client_cuts import cuts
from tests.support.auth.credentials import Judge
from tests.support.clients.async_client import AsyncClient, connect_frame, topics_frame
from tests.support.proxies.counted import counted
from tests.support.proxies.events import CheckedSink, Event
from tests.support.proxies.proxy_under_test import (
    FLAGS_BYTES,
    LIST_BYTES,
    NAME_BYTES,
    TIGHT,
    TOPICS,
    Stage,
    direct_taken,
    namespace,
    staged,
)
from tests.support.proxies.shared_lists import (
    all_have_lists,
    behind_a_question,
    being_written,
    let_go,
    waiting_for_direct_memory,
    waiting_for_heap,
    waiting_for_its_predecessor,
    waiting_for_the_broker,
    waiting_to_grow,
)
from tests.support.sockets.ports import free_port

LISTS: Final = CommandType.GET_TOPICS_OF_NAMESPACE


def kept() -> CheckedSink:
    return CheckedSink(keep=True)


def list_frame(request_id: int, number: int, **fields: Any) -> bytes:
    request = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=namespace(number), **fields)
    return frame(pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request))


async def told(stage: Stage, count: int) -> list[dict[str, Any]]:
    """Wait for so many events, and give them."""
    await stage.until(lambda: len(stage.events.kept) >= count, f"{count} events")
    assert len(stage.events.kept) == count
    return stage.events.kept


# --- lists that are answered ----------------------------------------------------------------------


async def test_a_list_is_one_event_with_all_that_it_was() -> None:
    async with staged(events=kept()) as stage:
        client = await stage.connected()
        everything = pb.CommandGetTopicsOfNamespace.ALL
        await client.send(list_frame(1, 3, topics_pattern="persistent://demo/.*", mode=everything))
        answer = await client.answer()
        (event,) = await told(stage, 1)
        found = answer.getTopicsOfNamespaceResponse
        expected = {
            "kind": "get_topics",
            "tenant": "demo",
            "namespace": namespace(3),
            "principal": None,
            "client_version": "async-client",
            "mode": "ALL",
            "broker": f"127.0.0.1:{stage.broker.port}",
            "group_size": 1,
            "carries_cost": True,
            "coalesced": False,
            "topic_count": len(found.topics),
            "name_bytes": sum(map(len, found.topics)),
            "filtered": found.filtered,
            "hash_unchanged": False,
            "outcome": "ok",
            "heap_limit_bytes": stage.heap.limit,
            "direct_limit_bytes": stage.direct.limit,
            "request_timeout_ms": stage.proxy.config.topic_list_request_timeout_millis,
            "max_outstanding_per_broker": 64,
            "fairness": "fifo",
            "coalescing": True,
        }
        assert {name: event[name] for name in expected} == expected
        assert event["response_bytes"] == event["direct_bytes"] == 8 + answer.ByteSize()
        for part in ("broker_wait_us", "upstream_us", "read_us", "reader_wait_us", "write_us"):
            assert event[part] is not None, part
        assert event["heap_byte_us"] > 0
        assert event["direct_byte_us"] > 0


async def test_a_storm_is_an_event_for_each_member_and_a_cost_for_each_group() -> None:
    members = 60
    async with staged(events=kept()) as stage:
        first, others = await behind_a_question(stage, members)
        let_go(stage)
        await all_have_lists([first, *others])
        events = await told(stage, members + 1)
        assert {event["outcome"] for event in events} == {"ok"}
        assert len({event["question_hash"] for event in events}) == 1
        assert len({event["client_id"] for event in events}) == members + 1
        groups = {event["group_id"] for event in events}
        assert len(groups) == stage.broker.record.topic_questions == 2
        costs = [event for event in events if event["carries_cost"]]
        assert {event["group_id"] for event in costs} == groups
        assert sorted(event["group_size"] for event in costs) == [1, members]
        assert {(event["topic_count"], event["name_bytes"]) for event in costs} == {(TOPICS, TOPICS * NAME_BYTES)}
        assert counted(stage.proxy.counters, "lists_answer_bytes") == len(groups) * (LIST_BYTES + FLAGS_BYTES)
        assert all(event["group_wait_us"] > 0 for event in events if event["group_size"] > 1)


# --- refusals -------------------------------------------------------------------------------------


async def test_what_is_refused_before_it_is_decoded_is_neither_counted_nor_an_event() -> None:
    async with staged(events=kept()) as stage:
        client, other = await stage.connected(), await stage.connected()
        properties = [pb.KeyValue(key=f"k{n}", value="v") for n in range(MAX_ENTRIES + 1)]
        await client.send(list_frame(2, 0, properties=properties))
        assert (await client.error(2)).error == ServerError.NotAllowedError
        text = namespace(0).encode()
        await other.send(list_frame(1, 0).replace(text, b"\xff" * len(text)))
        assert not await other.rest()
        await client.topics(namespace(0))
        assert [event["outcome"] for event in await told(stage, 1)] == ["ok"]
        assert counted(stage.proxy.counters, "get_topics_of_namespace_requests") == 1


async def test_a_broker_that_cannot_be_reached_is_an_error_on_the_way_to_it() -> None:
    async with staged(broker_port=free_port(), events=kept()) as stage:
        client = await stage.connected()
        await client.refused_topics(namespace(0))
        (event,) = await told(stage, 1)
        assert (event["outcome"], event["outcome_stage"]) == ("upstream_error", "broker")
        assert event["upstream_us"] is None


# --- clients that leave ---------------------------------------------------------------------------

Wait = Callable[[Stage], Awaitable[list[AsyncClient]]]


@cuts
@pytest.mark.parametrize(
    ("wait", "part"),
    [
        (waiting_for_its_predecessor, "group"),
        (waiting_for_heap, "heap"),
        (waiting_for_the_broker, "upstream"),
        (waiting_to_grow, "heap_update"),
        (waiting_for_direct_memory, "direct"),
        (being_written, "write"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_members_that_leave_say_where_the_group_stood(
    wait: Wait, part: str, cut: Callable[[AsyncClient], None]
) -> None:
    async with staged(events=kept(), **TIGHT) as stage:
        members = await wait(stage)
        assert stage.proxy.reports.recorder is not None
        stage.proxy.reports.recorder.make_events()
        before = len(stage.events.kept)
        for member in members:
            cut(member)
        await stage.until(lambda: len(stage.events.kept) >= before + len(members), "an event for each")
        left = stage.events.kept[before : before + len(members)]
        assert {(event["outcome"], event["outcome_stage"]) for event in left} == {("cancelled", part)}
        assert {event["close_cause"] for event in left} == {"client_closed"}
        assert [event["carries_cost"] for event in left] == [False] * (len(members) - 1) + [True]
        for gate in stage.broker.script.gates.values():
            gate.set()


async def test_requests_that_wait_for_their_turn_are_events_when_their_client_leaves() -> None:
    async with staged(events=kept()) as stage:
        stage.broker.script.hold(LISTS)
        client = await stage.connected()
        for request_id in range(1, 8):
            client.send_now(topics_frame(request_id, namespace(request_id)))
        await stage.until(lambda: stage.session_of(client).outstanding == 7, "all requests read")
        await stage.until(lambda: stage.outstanding == LISTS_AT_ONCE, "those at the broker")
        client.reset()
        events = await told(stage, 7)
        waited = [event for event in events if event["outcome_stage"] == "client"]
        assert len(waited) == 7 - LISTS_AT_ONCE
        assert {event["namespace"] for event in waited} == {namespace(n) for n in range(1 + LISTS_AT_ONCE, 8)}
        assert all(event["client_wait_us"] == event["total_us"] > 0 for event in waited)
        assert all(event["question_hash"] for event in waited)
        let_go(stage)


async def test_a_request_whose_client_is_ended_in_the_same_turn_counts_and_is_an_event() -> None:
    async with staged(events=kept()) as stage:
        client = await stage.connected()
        # On a busy machine a turn could end between the two.
        stage.proxy.core.loop_budget.now = lambda: 0.0
        # The second CONNECT ends the connection before the request's task has begun.
        await client.send(topics_frame(1, namespace(0)) + connect_frame())
        (event,) = await told(stage, 1)
        assert (event["outcome"], event["outcome_stage"], event["close_cause"]) == ("cancelled", "client", "error")
        assert (event["namespace"], event["group_id"]) == (namespace(0), None)
        assert stage.outcome("cancelled") == 1


async def test_a_client_that_does_not_read_is_closed_as_stalled() -> None:
    async with staged(events=kept(), **TIGHT) as stage:
        await direct_taken(stage)
        stage.change(topicListWriteStallTimeoutMillis=50)
        (event,) = await told(stage, 1)
        assert (event["outcome"], event["outcome_stage"], event["close_cause"]) == ("cancelled", "write", "stalled")
        assert stage.caused(DisconnectCause.WRITE_STALLED) == 1
        assert event["direct_byte_us"] > 0


# --- who ------------------------------------------------------------------------------------------


def texts_of(events: list[Event]) -> str:
    return json.dumps([{**event, "broker": None} for event in events])


@pytest.mark.parametrize("identities", ["hashed", "plain"])
async def test_names_are_in_events_only_if_the_operator_wants_them(identities: str) -> None:
    keys: dict[str, Any] = {"eventLogIdentities": identities, "eventLogSalt": "s" * 16, "authenticationEnabled": "true"}
    async with staged(events=kept(), role_finder=Judge(), **keys) as stage:
        ports = []
        for token in ("alice", "alice", "bob"):
            client = await stage.client()
            ports.append(client.sock.getsockname()[1])
            await client.send(connect_frame(auth_method_name="token", auth_data=token.encode()))
            assert (await client.answer()).type == pb.BaseCommand.CONNECTED
            await client.send(list_frame(1, 0, topics_pattern="secret-.*"))
            await client.answer()
        events = await told(stage, 3)
        text = texts_of(list(events))
        assert ("alice" in text, "127.0.0.1" in text) == (identities == "plain",) * 2
        assert "secret" not in text
        principals = [event["principal"] for event in events]
        assert principals[0] == principals[1] != principals[2]
        if identities == "plain":
            assert principals == ["alice", "alice", "bob"]
            assert [event["client_id"] for event in events] == [f"127.0.0.1:{port}" for port in ports]
        # Principals never share a question.
        assert len({event["question_hash"] for event in events}) == 2
        assert len({event["pattern_hash"] for event in events}) == 1


async def test_what_clients_choose_is_cut() -> None:
    async with staged(events=kept()) as stage:
        client = await stage.client()
        request = pb.CommandConnect(client_version="v" * 500, protocol_version=21)
        await client.send(frame(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=request)))
        await client.answer()
        await client.ask_topics("t/" + "n" * 1000)
        await client.answer()
        (event,) = await told(stage, 1)
        assert event["client_version"] == "v" * 64
        assert event["namespace"] == "t/" + "n" * 254
