"""How brokers are asked on behalf of many, and how an answer's memory goes as the answer leaves."""

from protocol.command_type import CommandType
from proxy.cli.demo.topics import GeneratedTopics
from tests.support.clients.async_client import schema_frame
from tests.support.proxies.proxy_under_test import SLOW_READER_RCVBUF, TOPIC, namespace, staged


async def test_a_broker_gets_no_more_list_connections_than_a_key_allows() -> None:
    async with staged(brokerConnectionsPerKey=2, topicListCoalescingEnabled="false") as stage:
        gate = stage.broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        clients = [await stage.connected() for _ in range(10)]
        asked = [await client.ask_topics(namespace(0)) for client in clients]
        await stage.until(lambda: stage.broker.record.topic_questions == len(asked), "all questions at the broker")
        await stage.until(lambda: len(stage.broker.connections) == 2, "a second connection beside the busy one")
        clients += [await stage.connected() for _ in range(5)]
        for client in clients[10:]:
            asked.append(await client.ask_topics(namespace(0)))
        await stage.until(lambda: stage.broker.record.topic_questions == len(asked), "more questions at the broker")
        assert len(stage.broker.connections) == 2
        gate.set()
        for client in clients:
            assert (await client.answer()).type == CommandType.GET_TOPICS_OF_NAMESPACE_RESPONSE


async def test_a_schema_lost_with_its_connection_is_asked_for_once_more() -> None:
    async with staged() as stage:
        gate = stage.broker.script.hold(CommandType.GET_SCHEMA)
        client = await stage.connected()
        await client.send(schema_frame(1, TOPIC))
        await stage.broker.record.seen(CommandType.GET_SCHEMA)
        for connection in list(stage.broker.connections):
            connection.abort()
        await stage.broker.record.seen(CommandType.GET_SCHEMA, 2)
        gate.set()
        answer = await client.answer()
        assert answer.type in (CommandType.GET_SCHEMA_RESPONSE, CommandType.ERROR)
        assert "connection" not in answer.error.message


async def test_a_direct_permit_shrinks_while_its_list_leaves() -> None:
    async with staged(GeneratedTopics(20, 20_000, 100), clientSocketSendBufferBytes=4096) as stage:
        client = await stage.connected(SLOW_READER_RCVBUF)
        await client.ask_topics(namespace(0))
        await stage.until(lambda: stage.direct.held > 1_900_000, "the list under its permit")
        begun = await client.receive(1_300_000)
        await stage.until(lambda: 0 < stage.direct.held < 1_000_000, "half of the permit gone with half of the list")
        await client.receive(4 + int.from_bytes(begun[:4], "big") - len(begun))
