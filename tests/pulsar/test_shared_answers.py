"""Equal requests share a question to the broker, and yet nobody gets an answer to a question older than its request.

A broker 4.2 that is asked twice at once shares its own work in progress and may leave out a topic whose creation it
has acknowledged before the second question. The proxy has one question of a kind under way, so behind it this cannot
happen.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.pulsar import storm
from tests.pulsar.admin import Admin
from tests.pulsar.pages import lists_answered_by_broker, proxy_metrics
from tests.pulsar.proxy_process import Proxy, host_and_port
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import WireClient

pytestmark = pytest.mark.pulsar

ASKERS = 4
CREATORS = 3
CREATED = 25  # by each of them
EQUAL = 300


@pytest.fixture
def filled(admin: Admin, namespace: str) -> str:
    """Give a namespace whose list keeps the broker busy for some milliseconds, so that requests meet on the way."""
    admin.create_topic(f"persistent://{namespace}/{'n' * 400}", partitions=1024)
    return namespace


class Witness:
    """Ask for the same list over and over, while topics are created; each answer must hold all that was there.

    Whoever creates a topic asks at once: that request comes while an older question is likely to be on its way.
    """

    def __init__(self, name: str, url: str, admin: Admin, namespace: str) -> None:
        self._name = name
        self._url = url
        self._admin = admin
        self._namespace = namespace
        self._acknowledged: list[str] = []
        self.over = False
        self.answers = 0
        self.missing: list[str] = []

    def ask(self) -> None:
        with self._connected() as client:
            while not self.over:
                self._check(client)

    def create(self, creator: int) -> None:
        with self._connected() as client:
            for number in range(CREATED):
                topic = f"persistent://{self._namespace}/{self._name}-{creator}-{number}"
                self._admin.create_topic(topic)
                self._acknowledged.append(topic)
                self._check(client)

    def _check(self, client: WireClient) -> None:
        expected = list(self._acknowledged)
        topics = set(client.get_topics(self._namespace).topics)
        self.answers += 1
        self.missing += [topic for topic in expected if topic not in topics]

    @contextmanager
    def _connected(self) -> Iterator[WireClient]:
        with WireClient(*host_and_port(self._url)) as client:
            client.connect()
            yield client


def witnessed(
    name: str, url: str, admin: Admin, namespace: str, *, askers: int = ASKERS, creators: int = CREATORS
) -> Witness:
    witness = Witness(name, url, admin, namespace)
    with ThreadPoolExecutor(askers + creators) as threads:
        asking = [threads.submit(witness.ask) for _ in range(askers)]
        try:
            list(threads.map(witness.create, range(creators)))
        finally:
            witness.over = True
        for asked in asking:
            asked.result()
    assert witness.answers > creators * CREATED
    return witness


def test_every_answer_holds_all_topics_that_were_acknowledged_before_its_request(
    proxy_url: str, broker: Broker, admin: Admin, filled: str
) -> None:
    missing = witnessed("proxied", proxy_url, admin, filled).missing
    if missing:
        # The lists of a busy broker lag behind its own acknowledgements. The proxy is at fault if those of this broker
        # do not, asked without the proxy as seldom as the proxy asks.
        assert witnessed("direct", broker.service_url, admin, filled, askers=1, creators=1).missing, missing


async def test_a_storm_of_equal_requests_costs_the_broker_few_questions(
    new_proxy: Callable[[Mapping[str, str]], Proxy], broker: Broker, filled: str
) -> None:
    proxy = new_proxy({})
    before = await asyncio.to_thread(lists_answered_by_broker, broker)
    outcome = await storm.storm(host_and_port(proxy.service_url), [storm.request(filled)] * EQUAL, 100, 3)
    after = await asyncio.to_thread(lists_answered_by_broker, broker)
    assert (outcome.answered, len(outcome.lists), outcome.errors, outcome.lost) == (EQUAL, 1, {}, 0)
    # Two if all requests come before the first answer; a slow machine reads them in a few more parts.
    assert after - before <= EQUAL // 10
    metrics = await asyncio.to_thread(proxy_metrics, proxy)
    assert metrics("lists_answers_total", outcome="answered") == EQUAL
