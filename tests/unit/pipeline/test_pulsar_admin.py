"""Questions to an admin interface that is slow, busy, away, moved, or refuses; virtual time, a real port."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.core.errors import ExitCode
from pipeline.sources.pulsar.admin import Admin
from pipeline.sources.pulsar.credentials import AccessToken, parameters
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import PulsarSettings
from tests.support.auth.tls import PemFiles, server_context

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Service:
    """Answers in turn, the last one for ever; `asked` are the requests as path, authorization and body."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, str | None, bytes]] = field(default_factory=list)

    def next(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made.asked.append((self.path, self.headers.get("Authorization"), body))
            status, headers, content = made.next()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Service(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}")
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as made:
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


def test_busy_service_is_asked_again_with_longer_pauses(service: Service) -> None:
    service.answers = [(503, {}, b""), (500, {}, b""), (429, {}, b""), (200, {}, b"1")]
    time = Time()
    assert asking(service.url, time).get("/x") == 1
    assert time.slept == [0.25, 0.5, 1.0]


def test_patience_ends(service: Service) -> None:
    service.answers = [(503, {}, b"not\nyet")]
    time = Time()
    with pytest.raises(TopicError, match=r"does not answer: 503 not yet \(tried for 10 s; --admin-url\)") as error:
        asking(service.url, time).get("/x")
    assert time.now <= 10
    assert error.value.code == ExitCode.SOURCE


@pytest.mark.parametrize("status", [401, 403])
def test_refusal_is_told_at_once(service: Service, status: int) -> None:
    service.answers = [(status, {}, b"no")]
    with pytest.raises(TopicError, match=rf"refuses \({status}\): log in with --auth as a role that may"):
        asking(service.url, Time()).get("/x")
    assert len(service.asked) == 1


def test_page_that_is_no_admin_interface_is_told(service: Service) -> None:
    service.answers = [(200, {}, b"<html>")]
    with pytest.raises(TopicError, match="got no JSON: is --admin-url the admin interface"):
        asking(service.url, Time()).get("/x")


def test_redirect_to_the_owner_is_followed_with_credentials(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    service.answers = [(307, {"Location": f"{service.url}/owner"}, b""), (200, {}, b"1")]
    assert asking(service.url, Time(), auth="token", auth_env="TOKEN").get("/x") == 1
    assert [(path, header) for path, header, _ in service.asked] == [("/x", "Bearer abc"), ("/owner", "Bearer abc")]


def test_redirect_from_https_to_http_is_refused_and_gets_no_credentials(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    with serving(server_context()) as secure:
        secure.answers = [(307, {"Location": f"{service.url}/owner"}, b"")]
        service.answers = [(200, {}, b"1")]
        trust = str(PemFiles.write(tmp_path).trust)
        with pytest.raises(TopicError, match="a redirect to http, expected https"):
            asking(secure.url, Time(), auth="token", auth_env="TOKEN", tls_trust=trust).get("/x")
        assert [header for _, header, _ in secure.asked] == ["Bearer abc"]
    assert service.asked == []


def test_certificate_that_nobody_vouches_for_is_told_at_once() -> None:
    time = Time()
    with serving(server_context()) as secure, pytest.raises(TopicError, match=r"certificate verify.*\(--tls-trust\)"):
        asking(secure.url, time).get("/x")
    assert time.slept == []


# --- OAuth 2 ---------------------------------------------------------------------------------------


def access_token(service: Service, clock: Callable[[], float]) -> AccessToken:
    key = base64.b64encode(json.dumps({"client_id": "me", "client_secret": "s&t"}).encode()).decode()
    given = {
        "issuer_url": f"{service.url}/",
        "private_key": f"data:application/json;base64,{key}",
        "audience": "urn:pulsar",
    }
    return AccessToken(parameters(json.dumps(given)), ssl.create_default_context(), clock)


def test_access_token_is_got_from_the_issuer_and_renewed_before_it_ends(service: Service) -> None:
    found = json.dumps({"token_endpoint": f"{service.url}/token"}).encode()
    service.answers = [
        (200, {}, found),
        (200, {}, b'{"access_token": "one", "expires_in": 100}'),
        (200, {}, found),
        (200, {}, b'{"access_token": "two", "expires_in": 100}'),
    ]
    time = Time()
    token = access_token(service, lambda: time.now)
    assert [token.current(), token.current()] == ["one", "one"]
    time.now = 41.0
    assert token.current() == "two"
    paths = [path for path, _, _ in service.asked]
    assert paths == ["/.well-known/openid-configuration", "/token"] * 2
    form = b"grant_type=client_credentials&client_id=me&client_secret=s%26t&audience=urn%3Apulsar"
    assert service.asked[1][2] == form


def test_issuer_that_gives_none_is_told_without_the_secret(service: Service) -> None:
    service.answers = [(400, {}, b"bad secret s&t")]
    with pytest.raises(TopicError, match=f"--auth oauth2: {service.url} gave no access token: HTTPError 400") as error:
        access_token(service, lambda: 0.0).current()
    assert "s&t" not in str(error.value)
