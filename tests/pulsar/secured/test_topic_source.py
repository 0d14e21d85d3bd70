"""The Pulsar source logs in to a broker that asks who is there, by each kind of credentials, by TLS and without."""

from dataclasses import replace
from pathlib import Path

import pulsar
import pytest

from pipeline.sources.pulsar import PulsarSettings, require_topic
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import Login
from tests.pulsar.event_topics import read_all
from tests.pulsar.secured.clients import client
from tests.pulsar.secured.credentials import Credentials
from tests.pulsar.secured.servers import SecuredBroker

pytestmark = pytest.mark.pulsar

KINDS = ("token", "tls")


@pytest.fixture
def topic(broker: SecuredBroker, credentials: Credentials, namespace: str) -> str:
    name = f"persistent://{namespace}/events"
    with client(broker.service_url, credentials, pulsar.AuthenticationToken(credentials.token("admin"))) as admin:
        producer = admin.create_producer(name)
        for seq in range(5):
            producer.send(b'{"seq": %d}' % seq)
    return name


class Roles:
    """Settings for a role; the secrets are in files."""

    def __init__(self, broker: SecuredBroker, credentials: Credentials, topic: str, directory: Path) -> None:
        self._broker = broker
        self._credentials = credentials
        self._topic = topic
        self._directory = directory

    def by(self, kind: str, role: str, *, tls: bool = True) -> PulsarSettings:
        login = Login(tls_trust=str(self._credentials.ca_file))
        if kind == "token":
            file = self._directory / role
            file.write_text(self._credentials.token(role))
            login = replace(login, auth_file=str(file))
        else:
            certificate, key = self._credentials.certificate(role)
            login = replace(login, tls_certificate=certificate, tls_key=key)
        if not tls:
            return PulsarSettings(self._broker.service_url, self._topic, self._broker.admin_url, login)
        web = f"https://127.0.0.1:{self._broker.web_tls_port}"
        return PulsarSettings(self._broker.tls_url, self._topic, web, login)


@pytest.fixture
def login(broker: SecuredBroker, credentials: Credentials, topic: str, tmp_path: Path) -> Roles:
    return Roles(broker, credentials, topic, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_topic_is_read_by_whoever_may_consume(login: Roles, kind: str) -> None:
    assert read_all(login.by(kind, "alice")) == [0, 1, 2, 3, 4]


def test_token_needs_no_tls(login: Roles) -> None:
    assert read_all(login.by("token", "alice", tls=False)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_role_that_may_not_is_told_so(login: Roles, kind: str) -> None:
    with pytest.raises(TopicError, match=r"40[13].*: log in as a role that may ask .*\(--auth-file\)"):
        require_topic(login.by(kind, "bob"))


def test_certificate_that_nobody_trusts_is_refused(login: Roles) -> None:
    doubted = login.by("token", "alice")
    doubted = replace(doubted, login=replace(doubted.login, tls_trust=""))
    with pytest.raises(TopicError, match=r"certificate verify.*\(--tls-trust\)"):
        require_topic(doubted)


def test_policies_that_a_role_may_not_see_are_warned_of(login: Roles, capfd: pytest.CaptureFixture[str]) -> None:
    require_topic(login.by("token", "alice"))
    assert "may not see whether the topic keeps its messages" in capfd.readouterr().err


def test_topic_that_keeps_nothing_is_refused_to_a_role_that_may_see_it(login: Roles) -> None:
    with pytest.raises(TopicError, match="does not keep its messages: "):
        require_topic(login.by("token", "admin"))
