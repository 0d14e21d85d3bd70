"""Clients that try to make the proxy hold, or do, more than their share: each is refused and harms nobody."""

from protocol import commands
from protocol.command_type import CommandType
from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.clients.requests import LISTS_AT_ONCE
from proxy.requests.validation import MAX_PROPERTIES
from proxy.telemetry.refusals import Stage as Refusal
from tests.support.clients.async_client import lookup_frame, topics_frame
from tests.support.patience import patient_millis
from tests.support.proxies.proxy_under_test import TOPIC, namespace, staged

LISTS = CommandType.GET_TOPICS_OF_NAMESPACE


def topics_with(request_id: int, properties: int = 0, pattern: str | None = None) -> bytes:
    request = pb.CommandGetTopicsOfNamespace(namespace=namespace(0), request_id=request_id, topics_pattern=pattern)
    for _ in range(properties):
        request.properties.add(key="k", value="v")
    return commands.get_topics_request(request, request_id)


async def test_a_request_whose_decoded_form_is_many_times_its_bytes_is_refused() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(topics_with(1, properties=MAX_PROPERTIES))
        assert (await client.answer()).type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE
        await client.send(topics_with(2, properties=MAX_PROPERTIES + 1))
        assert (await client.error(2)).error == ServerError.NotAllowedError
        assert stage.broker.record.topic_questions == 1
        assert stage.proxy.counters.requests.refused_requests == {"properties": 1}
        await client.ping()


async def test_a_list_request_too_long_to_be_one_is_refused_unread() -> None:
    async with staged() as stage:
        client = await stage.connected()
        await client.send(topics_with(1, pattern="a" * 5000))
        error = await client.error(1)
        assert error.error == ServerError.NotAllowedError
        assert "at most 4096" in error.message
        assert stage.direct.statistics().peak_held == 0
        await client.ping()


async def test_leaving_does_not_free_the_places_of_questions_the_broker_still_works_on() -> None:
    async with staged(maxConcurrentLookupRequests=3) as stage:
        gate = stage.broker.script.hold(CommandType.LOOKUP)
        for number in range(3):
            client = await stage.connected()
            await client.send(lookup_frame(number, TOPIC))
        await stage.until(lambda: stage.outstanding == 3, "three questions at the broker")
        for client in list(stage.clients):
            client.close()
        await stage.until(lambda: len(stage.proxy.sessions) == 0, "nobody there")
        late = await stage.connected()
        assert (await late.lookup(TOPIC)).error == ServerError.TooManyRequests
        gate.set()
        await stage.until(lambda: stage.lookups.held == 0, "all places free")
        assert (await late.lookup(TOPIC)).response == pb.CommandLookupTopicResponse.Connect


async def test_a_list_that_waited_out_its_time_is_never_asked_for() -> None:
    async with staged(topicListRequestTimeoutMillis=patient_millis(1000)) as stage:
        gate = stage.broker.script.hold(LISTS)
        client = await stage.connected()
        # In one segment, so that all have the same deadline: none may get the place of one that ran out before it.
        await client.send(b"".join(topics_frame(client.next_id(), namespace(number)) for number in range(8)))
        for _ in range(8):
            answer = await client.answer()
            assert answer.error.error == ServerError.TooManyRequests
            assert answer.error.message in {Refusal.BROKER.refusal, Refusal.CLIENT_BUSY.refusal}
        assert stage.broker.record.topic_questions == LISTS_AT_ONCE
        gate.set()


async def test_a_client_that_reads_its_list_is_not_cut_for_answers_that_wait_behind_it() -> None:
    async with staged() as stage:
        held = stage.direct.try_acquire(stage.direct.limit)
        assert held is not None
        client = await stage.connected()
        for number in range(200):
            await client.send(lookup_frame(number, TOPIC))
        for _ in range(200):
            assert (await client.answer()).type == CommandType.LOOKUP_RESPONSE
        held.release()
