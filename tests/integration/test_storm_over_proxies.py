"""A storm over three real proxies: each asks for itself, and only for what its own clients do not share."""

import asyncio
from functools import partial

from protocol.command_type import CommandType
from proxy.cli.demo.broker import EmbeddedBroker
from proxy.cli.demo.topics import GeneratedTopics
from tests.support.clients.async_client import AsyncClient, eventually
from tests.support.proxies.several import SeveralProxies, several_proxies

PROXIES, CLIENTS, TOPICS = 3, 90, 200


def asked(several: SeveralProxies) -> int:
    return sum(proxy.counters.requests.asked[CommandType.GET_TOPICS_OF_NAMESPACE] for proxy in several.proxies)


def has_asked(broker: EmbeddedBroker, count: int) -> bool:
    return broker.record.topic_questions >= count


async def questions(namespaces: int) -> int:
    """Return the questions that a broker gets which answers when all clients have asked; each client has its list."""
    store = GeneratedTopics(namespaces, TOPICS, 100)
    async with (
        EmbeddedBroker(store) as broker,
        several_proxies(PROXIES, broker.service_url) as several,
    ):
        gate = broker.script.hold(CommandType.GET_TOPICS_OF_NAMESPACE)
        clients = [await AsyncClient.open(several.proxies[number % PROXIES].port) for number in range(CLIENTS)]
        for client in clients:
            await client.connect()
        for number, client in enumerate(clients):
            await client.ask_topics(store.namespace(number % namespaces))
            if number < PROXIES:
                # What is on its way when the storm comes.
                await eventually(partial(has_asked, broker, number + 1), "a question")
        await eventually(lambda: asked(several) == CLIENTS, "a request of each client")
        gate.set()
        answers = await asyncio.gather(*(client.answer() for client in clients))
        assert {len(answer.getTopicsOfNamespaceResponse.topics) for answer in answers} == {TOPICS}
        for client in clients:
            client.close()
        return broker.record.topic_questions


async def test_equal_lists_cost_each_proxy_two_questions() -> None:
    assert await questions(1) == 2 * PROXIES


async def test_a_list_for_each_client_costs_a_question_each() -> None:
    assert await questions(CLIENTS) == CLIENTS
