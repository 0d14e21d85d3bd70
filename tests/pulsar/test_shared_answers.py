"""Equal requests share a question to the broker, and yet nobody gets an answer to a question older than its request.

A broker 4.2 that is asked twice at once shares its own work in progress and may leave out a topic whose creation it has
acknowledged before the second question. The proxy has one question of a kind under way, so behind it this cannot happen.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pulsar import storm
from tests.pulsar.admin import Admin
from tests.pulsar.pages import lists_answered_by_broker, proxy_metrics
from tests.pulsar.proxy_process import Proxy, host_and_port
from tests.pulsar.standalone import Broker
from tests.support.wire import WireClient

pytestmark = pytest.mark.pulsar

ASKERS = 6
CREATED = 40
EQUAL = 300


@pytest.fixture
def filled(admin: Admin, namespace: str) -> str:
    """Give a namespace whose list keeps the broker busy for some milliseconds, so that requests meet on the way."""
    admin.create_topic(f"persistent://{namespace}/{'n' * 400}", partitions=1024)
    return namespace


class Witness:
    """Ask for the same list over and over, while topics are created; each answer must hold all that was there."""

    def __init__(self, url: str, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self.acknowledged: list[str] = []
        self.over = False

    def ask(self) -> tuple[int, list[str]]:
        """Return the number of answers, and the topics that were missing in any of them."""
        answers, missing = 0, []
        with WireClient(*host_and_port(self._url)) as client:
            client.connect()
            while not self.over:
                expected = list(self.acknowledged)
                topics = set(client.get_topics(self._namespace).topics)
                answers += 1
                missing += [topic for topic in expected if topic not in topics]
        return answers, missing


def test_every_answer_holds_all_topics_that_were_acknowledged_before_its_request(
    proxy_url: str, admin: Admin, filled: str
) -> None:
    witness = Witness(proxy_url, filled)
    with ThreadPoolExecutor(ASKERS) as threads:
        asking = [threads.submit(witness.ask) for _ in range(ASKERS)]
        try:
            for number in range(CREATED):
                topic = f"persistent://{filled}/created-{number}"
                admin.create_topic(topic)
                witness.acknowledged.append(topic)
        finally:
            witness.over = True
        answers, missing = zip(*(asked.result() for asked in asking), strict=True)
    assert sum(missing, []) == []
    assert sum(answers) > CREATED


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
