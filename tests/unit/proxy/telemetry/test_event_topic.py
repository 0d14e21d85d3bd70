"""The topic's store before a client library that does what a test says; its credentials, and who asks for policies."""

import asyncio
import ssl
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import pulsar
import pytest

from eventlog.drain import StoreError
from eventlog.schema import SCHEMA_VERSION
from eventlog.topic_admin import AdminError, Keeping, TopicAdmin, topic_name
from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import Plain
from proxy.config.config import Config
from proxy.core.errors import CredentialsUnavailable
from proxy.telemetry.events.topic import TopicParts, service_url
from proxy.telemetry.events.topic_credentials import TopicCredentials, topic_tls
from proxy.telemetry.events.topic_sink import TopicEventStore, TopicSettings
from proxy.telemetry.events.topic_watch import TopicWatch
from tests.support.log_lines import LogLines

TOPIC = "persistent://public/log/events"


class Cluster:
    """What the client library would reach; `failures` are raised by the next flushes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 0) -> None:
        self.names = [f"{TOPIC}-partition-{number}" for number in range(partitions)] or [TOPIC]
        self.kept: list[tuple[str, bytes]] = []
        self.failures: list[Exception] = []
        self.clients: list[Client] = []
        self.producers: list[weakref.ref[Producer]] = []
        monkeypatch.setattr(pulsar, "Client", self._client)

    def _client(self, url: str, *, authentication: object, **settings: object) -> "Client":
        self.clients.append(Client(self, authentication))
        return self.clients[-1]


class Client:
    def __init__(self, cluster: Cluster, authentication: object) -> None:
        self._cluster = cluster
        self.authentication = authentication
        self.ended = ""

    def create_producer(self, topic: str, **settings: object) -> "Producer":
        self._cluster.producers.append(weakref.ref(producer := Producer(self._cluster, topic)))
        return producer

    def get_topic_partitions(self, topic: str) -> list[str]:
        return self._cluster.names

    def close(self) -> None:
        self.ended = "closed"

    def shutdown(self) -> None:
        self.ended = "shut down"


class Producer:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._pending: list[bytes] = []

    def send_async(self, content: bytes, callback: object, properties: Mapping[str, str]) -> None:
        assert callback is None
        assert properties == {"schema_version": str(SCHEMA_VERSION)}
        self._pending.append(content)

    def flush(self) -> None:
        pending, self._pending = self._pending, []
        if self._cluster.failures:
            raise self._cluster.failures.pop(0)
        self._cluster.kept += [(self._topic, content) for content in pending]


def store() -> TopicEventStore:
    return TopicEventStore(TopicSettings(TOPIC, "pulsar://broker:6650"), lambda: None)


def test_blocks_go_to_partitions_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, topic = Cluster(monkeypatch, partitions=2), store()
    for number in range(4):
        topic.write([b"%d\n" % number], 0.0)
    assert [(name[-1], content) for name, content in cluster.kept] == [
        ("0", b"0"), ("1", b"1"), ("0", b"2"), ("1", b"3"),
    ]  # fmt: skip
    assert len(cluster.clients) == 1


def test_block_that_failed_goes_to_the_next_partition_over_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, topic = Cluster(monkeypatch, partitions=3), store()
    cluster.failures = [RuntimeError("Pulsar error: TimeOut")]
    with pytest.raises(StoreError, match=f"{TOPIC}: pulsar error: timeout"):
        topic.write([b"a\n"], 0.0)
    assert [client.ended for client in cluster.clients] == ["shut down"]
    topic.write([b"a\n"], 0.0)
    ((name, _),) = cluster.kept
    assert name.endswith("-2")
    assert len(cluster.clients) == 2


def test_topic_without_partitions_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, topic = Cluster(monkeypatch), store()
    cluster.names = []
    with pytest.raises(StoreError, match="names no partition"):
        topic.write([b"a\n"], 0.0)


def test_a_closed_topic_keeps_nothing_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    # A producer of the library keeps threads and descriptors for as long as it is kept itself.
    cluster, topic = Cluster(monkeypatch), store()
    topic.write([b"a\n"], 0.0)
    topic.close()
    assert [found() for found in cluster.producers] == [None]


# --- credentials ----------------------------------------------------------------------------------


async def in_sink_thread(credentials: TopicCredentials) -> Any:
    return await asyncio.to_thread(credentials.authentication)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "NoneType"),
        (AuthData("token", b"t"), "AuthenticationToken"),
        (AuthData("basic", b"user:pass:word"), "AuthenticationBasic"),
    ],
)
async def test_own_credentials_are_made_for_the_client_library(data: AuthData | None, kind: str) -> None:
    credentials = TopicCredentials(Plain(lambda: data), asyncio.get_running_loop())
    assert type(await in_sink_thread(credentials)).__name__ == kind


async def test_certificate_is_shown_if_it_is_the_credential() -> None:
    own = Plain(lambda: AuthData("tls", b""), ("cert.pem", "key.pem"))
    credentials = TopicCredentials(own, asyncio.get_running_loop())
    assert type(await in_sink_thread(credentials)).__name__ == "AuthenticationTLS"


def test_credentials_of_a_loop_that_has_ended_cannot_be_had() -> None:
    loop = asyncio.new_event_loop()
    credentials = TopicCredentials(Plain(lambda: AuthData("token", b"t")), loop)
    loop.close()
    with pytest.raises(CredentialsUnavailable):
        credentials.authentication()


async def test_each_connection_gets_the_token_of_its_time_and_never_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar, "AuthenticationToken", lambda supplier: supplier)
    tokens: list[str] = ["first", "second"]

    def read() -> AuthData:
        if not tokens:
            raise CredentialsUnavailable("gone")
        return AuthData("token", tokens.pop(0).encode())

    credentials = TopicCredentials(Plain(read), asyncio.get_running_loop())
    fresh = await in_sink_thread(credentials)
    assert [await asyncio.to_thread(fresh) for _ in range(2)] == ["second", "second"]


# --- where the topic is ---------------------------------------------------------------------------


def load(**keys: str) -> Config:
    given = {"brokerServiceURL": "pulsar://a:6650,pulsar://b", "brokerWebServiceURL": "http://a:8080"}
    return Config.load(overrides={**given, "eventLogTopic": TOPIC, **keys})


TLS = {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://a,b:7000"}


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({}, "pulsar://a:6650,b:6650"),
        (TLS, "pulsar+ssl://a:6651,b:7000"),
        ({"brokerServiceURL": "pulsar://[::1]:6650"}, "pulsar://[::1]:6650"),
        (TLS | {"eventLogTopicServiceURL": "pulsar://other:6650"}, "pulsar://other:6650"),
        ({"eventLogTopicServiceURL": "pulsar+ssl://a/, b:7000"}, "pulsar+ssl://a:6651,b:7000"),
    ],
)
def test_topic_is_at_the_own_brokers_or_where_its_key_says(keys: dict[str, str], url: str) -> None:
    assert service_url(load(**keys)) == url


FOREIGN = {"eventLogTopicServiceURL": "pulsar://other:6650"}
FOR_THE_TOPIC = {
    "eventLogTopicAuthenticationPlugin": "token",
    "eventLogTopicAuthenticationParameters": "token:for-the-topic",
}


@pytest.mark.parametrize(
    ("keys", "token"),
    [({}, "own"), (FOREIGN, None), (FOREIGN | FOR_THE_TOPIC, "for-the-topic"), (FOR_THE_TOPIC, "for-the-topic")],
)
async def test_own_credentials_are_for_own_brokers_alone(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, str], token: str | None
) -> None:
    cluster, asked = Cluster(monkeypatch), list[Mapping[str, str]]()

    def admin(urls: object, headers: Callable[[], Mapping[str, str]], *_: object) -> TopicAdmin:
        asked.append(headers())
        return Answers(())

    ANSWERS[:] = [Keeping(-1, -1, False)]
    monkeypatch.setattr("proxy.telemetry.events.topic.TopicAdmin", admin)
    monkeypatch.setattr(pulsar, "AuthenticationToken", lambda supplier: supplier)
    own, loop = Plain(lambda: AuthData("token", b"own")), asyncio.get_running_loop()
    parts = TopicParts(load(**keys), loop, own, ssl.create_default_context, lambda error: None)
    await asyncio.to_thread(parts.store().write, [b"a\n"], 0.0)
    shown = cluster.clients[0].authentication
    assert (await asyncio.to_thread(shown) if callable(shown) else shown) == token
    await parts.watch(LogLines().log).look()
    # The admin service of another cluster is not known.
    assert asked == ([] if "eventLogTopicServiceURL" in keys else [{"Authorization": f"Bearer {token}"}])
    await parts.close()


@pytest.mark.threat("credentials-to-event-cluster")
def test_foreign_cluster_is_not_shown_the_own_certificate() -> None:
    config = load(**TLS, brokerClientCertificateFilePath="cert.pem", brokerClientKeyFilePath="key.pem")
    own, foreign = topic_tls(config, own_cluster=True), topic_tls(config, own_cluster=False)
    assert (own.certificate_path, own.key_path, own.check_hostname) == ("cert.pem", "key.pem", True)
    assert (foreign.certificate_path, foreign.key_path, foreign.check_hostname) == ("", "", True)


# --- whether it keeps events ----------------------------------------------------------------------


class Answers(TopicAdmin):
    def keeping(self, topic: object) -> Keeping:
        assert str(topic) == TOPIC
        raised_or_found = ANSWERS.pop(0)
        if isinstance(raised_or_found, Exception):
            raise raised_or_found
        assert isinstance(raised_or_found, Keeping)
        return raised_or_found


ANSWERS: list[Exception | Keeping] = []


async def test_a_line_tells_each_change_and_the_metric_the_state_of_now() -> None:
    ANSWERS[:] = [Keeping(0, 0, True), Keeping(0, 0, True), Keeping(-1, -1, False), AdminError("503")]
    lines, states = LogLines(), []
    watch = TopicWatch(topic_name(TOPIC), lambda headers: Answers(()), None, lines.log)
    for _ in range(4):
        await watch.look()
        states.append(watch.topic_keeps)
    assert states == [False, False, True, None]
    assert [(line["level"], line["event"]) for line in lines.said] == [
        ("warning", "the topic would lose events"),
        ("info", "the topic keeps events"),
        ("warning", "not known whether the topic keeps events"),
    ]
    lost = lines.said[0]
    assert "deleteWhileInactive is true, expected false" in lost["detail"]
    assert lost["change"].startswith("retention and inactive-topic policy of public/log")


async def test_certificates_that_cannot_be_read_now_are_told_and_the_watch_goes_on() -> None:
    ANSWERS[:] = [Keeping(-1, -1, False)]
    lines, missing = LogLines(), [ssl.SSLError("no certificate found")]
    threads: set[int] = set()

    def admin(_: object) -> TopicAdmin:
        threads.add(threading.get_ident())
        if missing:
            raise missing.pop()
        return Answers(())

    watch = TopicWatch(topic_name(TOPIC), admin, None, lines.log)
    states = []
    for _ in range(2):
        await watch.look()
        states.append(watch.topic_keeps)
    assert states == [None, True]
    assert "no certificate found" in lines.said[0]["detail"]
    assert threading.get_ident() not in threads
