"""Questions to an admin interface that is slow, busy, away, moved, or refuses; virtual time, a real port."""

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode
from pipeline.sources.pulsar.admin import Admin
from pipeline.sources.pulsar.credentials import AccessToken, parameters
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import PulsarSettings
from tests.support.auth.tls import PemFiles, server_context
from tests.support.web.answering import Answer, Answering, answering


@pytest.fixture
def service() -> Iterator[Answering]:
    with answering() as made:
        yield made


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def asking(url: str, time: Time, **more: str) -> Admin:
    settings = PulsarSettings("pulsar://a", "persistent://t/n/x", url, **more)  # type: ignore[arg-type]
    return Admin(settings, 10.0, lambda: time.now, time.sleep)


def test_busy_service_is_asked_again_with_longer_pauses(service: Answering) -> None:
    service.answers = [Answer(503), Answer(500), Answer(429), Answer(200, b"1")]
    time = Time()
    assert asking(service.url, time).get("/x") == 1
    assert time.slept == [0.25, 0.5, 1.0]


def test_patience_ends(service: Answering) -> None:
    service.answers = [Answer(503, b"not\nyet")]
    time = Time()
    with pytest.raises(TopicError, match=r"does not answer: 503 not yet \(tried for 10 s; --admin-url\)") as error:
        asking(service.url, time).get("/x")
    assert time.now <= 10
    assert error.value.code == ExitCode.SOURCE


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_is_told_at_once(service: Answering, status: int) -> None:
    service.answers = [Answer(status, b"no")]
    with pytest.raises(TopicError, match=rf"refuses \({status}\): log in with --auth as a role that may"):
        asking(service.url, Time()).get("/x")
    assert len(service.asked) == 1


def test_page_that_is_no_admin_interface_is_told(service: Answering) -> None:
    service.answers = [Answer(200, b"<html>")]
    with pytest.raises(TopicError, match="got no JSON: is --admin-url the admin interface"):
        asking(service.url, Time()).get("/x")


def test_redirect_to_the_owner_is_followed_with_credentials(
    service: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    service.answers = [Answer(307, b"", {"Location": f"{service.url}/owner"}), Answer(200, b"1")]
    assert asking(service.url, Time(), auth="token", auth_env="TOKEN").get("/x") == 1
    assert [(each.path, each.headers["Authorization"]) for each in service.asked] == [
        ("/x", "Bearer abc"),
        ("/owner", "Bearer abc"),
    ]


def test_redirect_from_https_to_http_is_refused_and_gets_no_credentials(
    service: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    with answering(server_context()) as secure:
        secure.answers = [Answer(307, b"", {"Location": f"{service.url}/owner"})]
        service.answers = [Answer(200, b"1")]
        trust = str(PemFiles.write(tmp_path).trust)
        with pytest.raises(TopicError, match="a redirect to http, expected https"):
            asking(secure.url, Time(), auth="token", auth_env="TOKEN", tls_trust=trust).get("/x")
        assert [each.headers["Authorization"] for each in secure.asked] == ["Bearer abc"]
    assert service.asked == []


def test_certificate_that_nobody_vouches_for_is_told_at_once() -> None:
    time = Time()
    with answering(server_context()) as secure, pytest.raises(TopicError, match=r"certificate verify.*\(--tls-trust\)"):
        asking(secure.url, time).get("/x")
    assert time.slept == []


# --- OAuth 2 ---------------------------------------------------------------------------------------


def access_token(service: Answering, clock: Callable[[], float]) -> AccessToken:
    key = base64.b64encode(json.dumps({"client_id": "me", "client_secret": "s&t"}).encode()).decode()
    given = {
        "issuer_url": f"{service.url}/",
        "private_key": f"data:application/json;base64,{key}",
        "audience": "urn:pulsar",
    }
    return AccessToken(parameters(json.dumps(given)), ssl.create_default_context(), clock)


def test_access_token_is_got_from_the_issuer_and_renewed_before_it_ends(service: Answering) -> None:
    found = json.dumps({"token_endpoint": f"{service.url}/token"}).encode()
    service.answers = [
        Answer(200, found),
        Answer(200, b'{"access_token": "one", "expires_in": 100}'),
        Answer(200, found),
        Answer(200, b'{"access_token": "two", "expires_in": 100}'),
    ]
    time = Time()
    token = access_token(service, lambda: time.now)
    assert [token.current(), token.current()] == ["one", "one"]
    time.now = 41.0
    assert token.current() == "two"
    paths = [each.path for each in service.asked]
    assert paths == ["/.well-known/openid-configuration", "/token"] * 2
    form = b"grant_type=client_credentials&client_id=me&client_secret=s%26t&audience=urn%3Apulsar"
    assert service.asked[1].body == form


def test_issuer_that_gives_none_is_told_without_the_secret(service: Answering) -> None:
    service.answers = [Answer(400, b"bad secret s&t")]
    with pytest.raises(TopicError, match=f"--auth oauth2: {service.url} gave no access token: HTTPError 400") as error:
        access_token(service, lambda: 0.0).current()
    assert "s&t" not in str(error.value)
