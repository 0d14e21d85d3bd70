"""The Pulsar source logs in to a broker that asks who is there, by each kind of credentials, by TLS and without."""

from dataclasses import replace
from pathlib import Path

import pulsar
import pytest

from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.keeping import WantedTopic, init_topic, require_keeping
from pipeline.sources.pulsar.options import AuthKind, PulsarSettings
from tests.pulsar.event_topics import read_all
from tests.pulsar.secured.clients import client
from tests.pulsar.secured.credentials import Credentials, password
from tests.pulsar.secured.servers import SecuredBroker
from tests.support.patience import patient

pytestmark = pytest.mark.pulsar

KINDS: tuple[AuthKind, ...] = ("token", "basic", "tls")


@pytest.fixture
def topic(broker: SecuredBroker, credentials: Credentials, namespace: str) -> str:
    name = f"persistent://{namespace}/events"
    with client(broker.service_url, credentials, pulsar.AuthenticationToken(credentials.token("admin"))) as admin:
        producer = admin.create_producer(name)
        for seq in range(5):
            producer.send(b'{"seq": %d}' % seq)
    return name


class Login:
    """Settings for a role; the secrets are in files."""

    def __init__(self, broker: SecuredBroker, credentials: Credentials, topic: str, directory: Path) -> None:
        self._broker = broker
        self._credentials = credentials
        self._topic = topic
        self._directory = directory

    def by(self, kind: AuthKind, role: str, *, tls: bool = True) -> PulsarSettings:
        plain = PulsarSettings(
            self._broker.service_url,
            self._topic,
            self._broker.admin_url,
            auth=kind,
            read_timeout_seconds=round(patient(10)),
        )
        if kind in ("token", "basic"):
            file = self._directory / f"{role}.{kind}"
            file.write_text(self._credentials.token(role) if kind == "token" else f"{role}:{password(role)}")
            plain = replace(plain, auth_file=str(file))
        if kind == "tls":
            certificate, key = self._credentials.certificate(role)
            plain = replace(plain, tls_certificate=certificate, tls_key=key)
        if not tls:
            return plain
        web = f"https://127.0.0.1:{self._broker.web_tls_port}"
        return replace(plain, service_url=self._broker.tls_url, admin_url=web, tls_trust=str(self._credentials.ca_file))


@pytest.fixture
def login(broker: SecuredBroker, credentials: Credentials, topic: str, tmp_path: Path) -> Login:
    return Login(broker, credentials, topic, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_topic_is_read_by_whoever_may_consume(login: Login, kind: AuthKind) -> None:
    assert read_all(login.by(kind, "alice")) == [0, 1, 2, 3, 4]
    # Without the admin interface it is enough to be let in by the broker.
    assert read_all(replace(login.by(kind, "alice"), admin_url="")) == [0, 1, 2, 3, 4]
    if kind != "tls":
        assert read_all(login.by(kind, "alice", tls=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_role_that_may_not_is_told_so(login: Login, kind: AuthKind) -> None:
    with pytest.raises(TopicError, match=r"refuses \(40[13]\): log in with --auth"):
        read_all(login.by(kind, "bob"))
    with pytest.raises(TopicError, match=r"refused \(Auth\w+Error\): log in with --auth"):
        read_all(replace(login.by(kind, "bob"), admin_url=""))


def test_certificate_that_nobody_trusts_is_refused(login: Login) -> None:
    doubted = replace(login.by("token", "alice"), tls_trust="")
    with pytest.raises(TopicError, match=r"CERTIFICATE_VERIFY_FAILED.*\(--tls-trust\)"):
        read_all(doubted)


def test_policies_that_a_role_may_not_see_are_warned_of(login: Login, capfd: pytest.CaptureFixture[str]) -> None:
    require_keeping(login.by("token", "alice"))
    assert "may not see whether the topic keeps its messages" in capfd.readouterr().err


def test_administrator_makes_a_topic_that_keeps_its_events(login: Login) -> None:
    settings = login.by("token", "admin")
    said: list[str] = []
    with pytest.raises(TopicError, match=r"does not keep its messages: .*init-topic"):
        require_keeping(settings)
    init_topic(settings, WantedTopic(0, 60, -1), said.append)
    assert said == [f"{settings.topic} keeps messages: for 60 min, of any size, and stays when nobody uses it"]
    require_keeping(settings)
    with pytest.raises(TopicError, match=r"refused: .*log in with --auth as an administrator"):
        init_topic(login.by("token", "alice"), WantedTopic(0, 60, -1), said.append)
