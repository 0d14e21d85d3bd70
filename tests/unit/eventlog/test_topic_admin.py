"""The admin API as a broker's HTTP server answers it, and as none should."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from eventlog.topic_admin import AdminError, Keeping, TopicAdmin, _next_url, topic_name

TOPIC = topic_name("persistent://public/log/events")
PATH = "/admin/v2/persistent/public/log/events"
NAMESPACE = "/admin/v2/namespaces/public/log"
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@dataclass
class Asked:
    method: str
    path: str
    body: Any
    headers: dict[str, str]


@dataclass
class AdminServer:
    """Answers by (method, path): a status and a body, and headers if there are any."""

    answers: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def admin(self, **changes: Any) -> TopicAdmin:
        return TopicAdmin((self.url,), **changes)


@pytest.fixture
def server() -> Iterator[AdminServer]:
    made = AdminServer()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            made.asked.append(Asked(self.command, self.path, body, dict(self.headers)))
            status, content, *more = made.answers.get((self.command, self.path), (404, {"reason": "nothing here"}))
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in dict(*more).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        made.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield made
        http.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("keeping", "keeps", "problems"),
    [
        (Keeping(-1, -1, False), True, 0),
        (Keeping(60, 100, False), True, 0),
        (Keeping(0, 0, False), False, 1),
        (Keeping(60, 0, False), False, 1),
        (Keeping(0, -1, False), False, 1),
        (Keeping(-1, -1, True), False, 1),
        (Keeping(-1, -1, None), False, 1),
        (Keeping(), False, 2),
    ],
)
def test_topic_keeps_what_both_policies_let_it_keep(keeping: Keeping, keeps: bool, problems: int) -> None:
    assert (keeping.keeps, len(keeping.problems())) == (keeps, problems)


@pytest.mark.parametrize(
    "text",
    [
        "persistent://a/b", "non-persistent://a/b/c", "a/b/c", "persistent:///b/c", "", "persistent://a/b/c/d",
        "persistent://a/b/c?x", "persistent://a/b/c#x", "persistent://a/b/c d", "persistent://a b/c/d",
        "persistent://a/b?/c", "persistent://a/b/c\n", "persistent://a/b/",
    ],
)  # fmt: skip
def test_name_that_is_no_persistent_topic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected persistent://tenant/namespace/topic"):
        topic_name(text)


def test_policies_in_force_are_asked_of_the_topic(server: AdminServer) -> None:
    server.answers = {
        ("GET", f"{PATH}/retention?applied=true"): (200, FOR_EVER),
        ("GET", f"{PATH}/inactiveTopicPolicies?applied=true"): (200, {"deleteWhileInactive": False}),
    }
    assert server.admin().keeping(TOPIC) == Keeping(-1, -1, False)


@pytest.mark.parametrize("status", [403, 404, 405, 412])
def test_namespace_is_asked_where_topics_have_no_policies(server: AdminServer, status: int) -> None:
    server.answers = {
        ("GET", f"{PATH}/retention?applied=true"): (status, {"reason": "no"}),
        ("GET", f"{PATH}/inactiveTopicPolicies?applied=true"): (status, {"reason": "no"}),
        ("GET", f"{NAMESPACE}/retention"): (200, FOR_EVER),
        ("GET", f"{NAMESPACE}/inactiveTopicPolicies"): (200, b""),
    }
    assert server.admin().keeping(TOPIC) == Keeping(-1, -1, None)


def test_keep_sets_both_and_reads_back(server: AdminServer) -> None:
    server.answers = {
        ("POST", f"{NAMESPACE}/retention"): (204, b""),
        ("POST", f"{NAMESPACE}/inactiveTopicPolicies"): (204, b""),
        ("GET", f"{PATH}/retention?applied=true"): (200, FOR_EVER),
        ("GET", f"{PATH}/inactiveTopicPolicies?applied=true"): (200, {"deleteWhileInactive": True}),
    }
    # A policy of the topic goes before what was set: that is what comes back.
    assert server.admin().keep(TOPIC, 60, 100) == Keeping(-1, -1, True)
    assert server.asked[0].body == {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}
    assert server.asked[1].body["deleteWhileInactive"] is False


@pytest.mark.parametrize(("partitions", "path", "body"), [(0, PATH, None), (4, f"{PATH}/partitions", 4)])
def test_topic_is_created_once(server: AdminServer, partitions: int, path: str, body: object) -> None:
    server.answers = {("PUT", path): (204, b"")}
    assert server.admin().create(TOPIC, partitions)
    assert server.asked[0].body == body
    server.answers = {("PUT", path): (409, {"reason": "This topic already exists"})}
    assert not server.admin().create(TOPIC, partitions)


def test_partitions_tell_a_topic_that_is_not_there(server: AdminServer) -> None:
    server.answers = {("GET", f"{PATH}/partitions"): (200, {"partitions": 3})}
    assert server.admin().partitions(TOPIC) == 3
    listing = ("GET", "/admin/v2/persistent/public/log")
    server.answers = {("GET", f"{PATH}/partitions"): (200, {"partitions": 0}), listing: (200, [])}
    assert server.admin().partitions(TOPIC) is None
    server.answers[listing] = (200, [str(TOPIC)])
    assert server.admin().partitions(TOPIC) == 0
    server.answers[("GET", f"{PATH}/partitions")] = (404, {"reason": "Topic not found"})
    assert server.admin().partitions(TOPIC) == 0


def test_credentials_are_asked_for_each_time_and_never_told(server: AdminServer) -> None:
    tokens = iter(["first", "second"])
    admin = server.admin(headers=lambda: {"Authorization": f"Bearer {next(tokens)}"})
    for token in ("first", "second"):
        with pytest.raises(AdminError) as caught:
            admin.create(TOPIC, 0)
        assert token not in str(caught.value)
        assert server.asked[-1].headers["Authorization"] == f"Bearer {token}"


def test_redirect_to_the_owner_takes_method_body_and_credentials_along(server: AdminServer) -> None:
    owner = f"{server.url}/owner"
    server.answers = {
        ("PUT", f"{PATH}/partitions"): (307, b"", {"Location": owner}),
        ("PUT", "/owner"): (204, b""),
    }
    assert server.admin(headers=lambda: {"Authorization": "Bearer t"}).create(TOPIC, 4)
    assert (server.asked[1].body, server.asked[1].headers["Authorization"]) == (4, "Bearer t")


def test_redirect_out_of_tls_is_refused() -> None:
    with pytest.raises(AdminError, match="a redirect to http, expected https"):
        _next_url("https://broker:8443/admin/v2/x?y=z", "http://broker:8080/admin/v2/x")
    assert _next_url("http://broker:8080/x", "https://broker:8443/x") == "https://broker:8443/x"


@pytest.mark.parametrize("location", ["http://user:s3cret@127.0.0.1/x", "http://[::1/x"])
def test_redirect_that_is_no_plain_url_is_refused(server: AdminServer, location: str) -> None:
    server.answers = {("PUT", PATH): (307, b"", {"Location": location})}
    with pytest.raises(AdminError, match="a redirect") as caught:
        server.admin().create(TOPIC, 0)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:s3cret@127.0.0.1:1", "http://user:s3cret@h:x", "http://user:s3/cret@h", "user:s3cret@h"]
)
def test_password_in_a_url_is_refused_and_never_told(url: str) -> None:
    with pytest.raises(AdminError, match="user info") as caught:
        TopicAdmin((url,)).keeping(TOPIC)
    assert "s3" not in str(caught.value)


def test_answer_is_read_to_its_bound(server: AdminServer) -> None:
    admin = server.admin(largest_answer_bytes=20)
    server.answers = {("GET", f"{PATH}/retention?applied=true"): (200, FOR_EVER)}
    with pytest.raises(AdminError, match="no json"):
        admin.keeping(TOPIC)
    server.answers = {("PUT", PATH): (500, {"reason": "long" * 20})}
    with pytest.raises(AdminError, match=r"500$"):
        admin.create(TOPIC, 0)


def test_proxies_of_the_environment_are_not_for_brokers(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.answers = {("PUT", PATH): (204, b"")}
    assert server.admin().create(TOPIC, 0)


def test_next_server_is_asked_if_one_cannot_answer(server: AdminServer) -> None:
    server.answers = {("PUT", PATH): (204, b"")}
    nobody = "http://127.0.0.1:1"
    assert TopicAdmin((nobody, server.url)).create(TOPIC, 0)
    with pytest.raises(AdminError, match="connection refused") as caught:
        TopicAdmin((nobody,)).create(TOPIC, 0)
    assert caught.value.status == 0


def test_server_that_never_answers_is_given_up() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = TopicAdmin((f"http://127.0.0.1:{silent.getsockname()[1]}",), timeout_seconds=0.05)
        with pytest.raises(AdminError, match="timed out"):
            admin.keeping(TOPIC)
