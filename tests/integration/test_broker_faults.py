"""What brokers do wrong to requests: each client gets one clear answer, and connections live where they can."""

import re

import pytest

from protocol.command_type import CommandType
from protocol.commands import frame, request_id_of
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from tests.support.brokers.embedded.script import Failure
from tests.support.brokers.raw_broker import (
    handshake,
    list_answer,
    raw_broker,
    request,
)
from tests.support.clients.async_client import AsyncClient, lookup_frame, schema_frame, topics_frame
from tests.support.patience import patient_millis
from tests.support.proxies.counted import counted, counted_by
from tests.support.proxies.proxy_under_test import (
    LIST_BYTES,
    TOPIC,
    TOPICS,
    namespace,
    staged,
)
from tests.support.sockets.ports import free_port
from tests.support.web.web_pages import scrape

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


def enough_millis() -> int:
    """Return a time within which a question is at the broker, on the machine as busy as it is now."""
    return patient_millis(500)


async def test_a_broker_that_refuses_tcp_is_an_error_and_the_connection_lives() -> None:
    port = free_port()
    async with staged(broker_port=port) as stage:
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.ServiceNotReady
        # A second later it says since when.
        said = f"cannot connect to broker 127.0.0.1:{port}: connection refused"
        assert re.fullmatch(re.escape(said) + r"(, for \d+ s now)?", error.message)
        assert (await client.lookup(TOPIC)).error == ServerError.ServiceNotReady
        await client.ping()
        assert stage.outcome("failed") == 1


async def test_a_question_nobody_answers_is_given_up_and_frees_its_slot() -> None:
    async with staged(topicListMaxOutstandingPerBroker=1) as stage:
        stage.give_up_after(enough_millis() / 1000)
        stage.broker.script.silent.add(LISTS)
        client = await stage.connected()
        # Asked twice: another broker might have answered.
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.ServiceNotReady
        assert stage.broker.record.topic_questions == 2
        # The broker answers PINGs, so its connection goes on.
        assert stage.caused("broker_silent") == 0
        assert counted(stage.proxy.counters, "unanswered_broker_questions") == 2
        stage.broker.script.silent.clear()
        stage.give_up_after(30.0)
        assert len((await client.topics(namespace(0))).topics) == TOPICS


async def test_a_broker_that_is_too_slow_is_an_error_after_the_requests_clock() -> None:
    async with staged(topicListRequestTimeoutMillis=enough_millis()) as stage:
        gate = stage.broker.script.hold(LISTS)
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.TooManyRequests
        assert error.message == "Failed because the broker did not answer in time"
        assert stage.outcome("timed_out") == 1
        # The broker works on it all the same: its slot is taken until the answer has passed.
        assert stage.books()["questions to ..."] == 1
        gate.set()
        await stage.until(lambda: not stage.books()["questions to ..."], "a free slot")
        await client.ping()


@pytest.mark.parametrize("cut_at", [1, 20, 100_000])
async def test_a_list_cut_in_mid_frame_is_asked_once_more_and_then_an_error(cut_at: int) -> None:
    async with staged() as stage:
        stage.broker.script.cut_mid_frame[LISTS] = cut_at
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.ServiceNotReady
        assert stage.broker.record.topic_questions == 2
        assert counted(stage.proxy.counters, "lists_asked_again") == 1
        await client.ping()


FRAMES = {
    LISTS: topics_frame(1, namespace(0)),
    CommandType.LOOKUP: lookup_frame(1, TOPIC),
    CommandType.GET_SCHEMA: schema_frame(1, TOPIC),
}


@pytest.mark.parametrize("kind", FRAMES)
async def test_an_answer_nobody_asked_for_is_counted_and_the_connection_lives(kind: CommandType) -> None:
    async with staged(topicListRequestTimeoutMillis=enough_millis()) as stage:
        stage.broker.script.unknown_request_id.add(kind)
        client = await stage.connected()
        await client.send(FRAMES[kind])
        answer = await client.answer()
        assert request_id_of(answer) == 1
        stage.broker.script.unknown_request_id.clear()
        stage.change(topicListRequestTimeoutMillis=28_000)
        assert not any(counted_by(stage.proxy.counters, "disconnects").values())
        await client.send(FRAMES[kind])
        assert request_id_of(await client.answer()) == 1
        assert (await scrape(stage.proxy.web_port))("unknown_broker_answers_total") == 1
        # The first question is out for as long as brokers have for an answer, 30 s: the end of its broker ends it.
        await stage.broker.stop()


PARTITIONS = frame(
    pb.BaseCommand(
        type=pb.BaseCommand.PARTITIONED_METADATA,
        partitionMetadata=pb.CommandPartitionedTopicMetadata(request_id=1, topic=TOPIC),
    )
)


@pytest.mark.parametrize(
    ("sent", "kind", "field"),
    [
        (FRAMES[LISTS], LISTS, "error"),
        (FRAMES[CommandType.GET_SCHEMA], CommandType.GET_SCHEMA, "error"),
        (FRAMES[CommandType.LOOKUP], CommandType.LOOKUP, "lookupTopicResponse"),
        (PARTITIONS, CommandType.PARTITIONED_METADATA, "partitionMetadataResponse"),
    ],
)
async def test_a_brokers_error_is_passed_on_with_its_code_and_text(sent: bytes, kind: CommandType, field: str) -> None:
    async with staged() as stage:
        stage.broker.script.failures[kind] = Failure(ServerError.TopicNotFound, "not for you")
        client = await stage.connected()
        await client.send(sent)
        error = getattr(await client.answer(), field)
        assert (error.request_id, error.error, error.message) == (1, ServerError.TopicNotFound, "not for you")


async def test_a_list_that_is_malformed_ends_the_brokers_connection_and_is_an_error() -> None:
    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            answer = list_answer(request_id_of(await request(peer)), ("a" * 100,) * 50)
            await peer.send(answer[:100] + b"\xff" * (len(answer) - 100))

    async with raw_broker(serve) as broker, staged(broker_port=broker.port) as stage:
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.ServiceNotReady
        assert stage.caused("malformed_frame") == 2
        await client.ping()


async def test_an_answer_of_another_kind_is_an_error_and_the_connection_lives() -> None:
    async def serve(peer: AsyncClient) -> None:
        await handshake(peer)
        while True:
            asked = await request(peer)
            schema = pb.CommandGetSchemaResponse(request_id=request_id_of(asked))
            await peer.send(frame(pb.BaseCommand(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=schema)))

    async with raw_broker(serve) as broker, staged(broker_port=broker.port) as stage:
        client = await stage.connected()
        for _ in range(2):
            assert (await client.refused_topics(namespace(0))).error == ServerError.UnknownError
        assert (await client.lookup(TOPIC)).error == ServerError.UnknownError
        assert len(broker.peers) == 2  # one for lists, one for lookups


async def test_a_list_above_the_answer_limit_is_skipped_with_a_clear_error() -> None:
    async with staged(topicListMaxAnswerBytes=100_000) as stage:
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.NotAllowedError
        assert f"topic list of {LIST_BYTES + 14} bytes exceeds" in error.message
        assert stage.proxy.reports.refusals.recent[-1].change == "topicListMaxAnswerBytes"
        assert "topicListMaxAnswerBytes (100000)" in error.message
        assert stage.heap.statistics().peak_held < 10_000
        # The skipped bytes are passed over; the same connection serves the next question.
        error = await client.refused_topics(namespace(1))
        assert error.error == ServerError.NotAllowedError
        assert stage.broker.record.connections_accepted <= 2
        await stage.until(lambda: not stage.outstanding, "all skipped")


async def test_a_list_above_the_clients_frame_limit_is_a_clear_error() -> None:
    async with staged(maxMessageSize=500_000) as stage:
        client = await stage.connected()
        error = await client.refused_topics(namespace(0))
        assert error.error == ServerError.NotAllowedError
        assert "topic list of 7000 topics needs a frame of" in error.message
        assert "maxMessageSize" in error.message
        await client.ping()
