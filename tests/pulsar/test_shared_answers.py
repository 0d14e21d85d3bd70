"""Equal requests share a question to the broker, and yet nobody gets an answer to a question older than its request.

A broker 4.2 that is asked twice at once shares its own work in progress and may leave out a topic whose creation it
has acknowledged before the second question. The proxy has one question of a kind under way, so behind it this cannot
happen.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.pulsar.admin import Admin
from tests.pulsar.proxy_process import connected
from tests.pulsar.standalone import Broker
from tests.support.clients.wire import WireClient

pytestmark = pytest.mark.pulsar

ASKERS = 4
CREATORS = 3
CREATED = 25  # by each of them


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
        with connected(self._url) as client:
            while not self.over:
                self._check(client)

    def create(self, creator: int) -> None:
        with connected(self._url) as client:
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
    service_url: str, broker: Broker, admin: Admin, filled: str
) -> None:
    missing = witnessed("proxied", service_url, admin, filled).missing
    if missing:
        # The lists of a busy broker lag behind its own acknowledgements. The proxy is at fault if those of this broker
        # do not, asked without the proxy as seldom as the proxy asks.
        assert witnessed("direct", broker.service_url, admin, filled, askers=1, creators=1).missing, missing
