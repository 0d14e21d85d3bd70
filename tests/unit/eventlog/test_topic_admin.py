"""The admin API as a broker's HTTP server answers it, and as none should."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventlog.topic_admin import AdminError, Keeping, TopicAdmin, topic_name
from tests.support.auth.tls import PemFiles, server_context
from tests.support.web.answering import Answer, Answering, answering

TOPIC = topic_name("persistent://public/log/events")
PATH = "/admin/v2/persistent/public/log/events"
NAMESPACE = "/admin/v2/namespaces/public/log"
FOR_EVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@pytest.fixture
def server() -> Iterator[Answering]:
    with answering() as made:
        yield made


def asking(server: Answering, **changes: Any) -> TopicAdmin:
    return TopicAdmin((server.url,), **changes)


@pytest.mark.parametrize(
    ("keeping", "keeps", "problems"),
    [
        (Keeping(-1, -1, False), True, 0),
        (Keeping(60, 100, False), True, 0),
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
        "persistent://a/b", "non-persistent://a/b/c", "a/b/c", "persistent:///b/c", "persistent://a/b/c/d",
        "persistent://a/b/c?x", "persistent://a?/b/c", "persistent://a/b/c d", "persistent://a/b/c\n",
    ],
)  # fmt: skip
def test_name_that_is_no_persistent_topic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected persistent://tenant/namespace/topic"):
        topic_name(text)


@pytest.mark.parametrize("status", [403, 404, 405, 412])
def test_namespace_is_asked_where_topics_have_no_policies(server: Answering, status: int) -> None:
    server.answers = {
        ("GET", f"{PATH}/retention?applied=true"): Answer(status, {"reason": "no"}),
        ("GET", f"{PATH}/inactiveTopicPolicies?applied=true"): Answer(status, {"reason": "no"}),
        ("GET", f"{NAMESPACE}/retention"): Answer(200, FOR_EVER),
        ("GET", f"{NAMESPACE}/inactiveTopicPolicies"): Answer(200, b""),
    }
    assert asking(server).keeping(TOPIC) == Keeping(-1, -1, None)


def test_credentials_are_asked_for_each_time_and_never_told(server: Answering) -> None:
    tokens = iter(["first", "second"])
    admin = asking(server, headers=lambda: {"Authorization": f"Bearer {next(tokens)}"})
    server.answers = {}
    for token in ("first", "second"):
        with pytest.raises(AdminError) as caught:
            admin.get(PATH)
        assert token not in str(caught.value)
        assert server.asked[-1].headers["Authorization"] == f"Bearer {token}"


def test_redirect_to_the_owner_takes_credentials_along(server: Answering) -> None:
    server.answers = {
        ("GET", PATH): Answer(307, b"", {"Location": f"{server.url}/owner"}),
        ("GET", "/owner"): Answer(200, b"4"),
    }
    assert asking(server, headers=lambda: {"Authorization": "Bearer t"}).get(PATH) == 4
    assert server.asked[1].headers["Authorization"] == "Bearer t"


def test_redirects_that_never_end_are_an_error(server: Answering) -> None:
    server.answers = {("GET", PATH): Answer(307, b"", {"Location": f"{server.url}{PATH}"})}
    with pytest.raises(AdminError, match="more than 5 redirects"):
        asking(server).get(PATH)


def test_redirect_out_of_tls_is_refused(server: Answering, tmp_path: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(PemFiles.write(tmp_path).trust))
    with answering(server_context()) as secure:
        secure.answers = [Answer(307, b"", {"Location": server.url})]
        with pytest.raises(AdminError, match="a redirect to http, expected https"):
            asking(secure, tls=trusted).get(PATH)
    assert server.asked == []


@pytest.mark.parametrize("location", ["http://user:s3cret@127.0.0.1/x", "http://[::1/x"])
def test_redirect_that_is_no_plain_url_is_refused(server: Answering, location: str) -> None:
    server.answers = {("GET", PATH): Answer(307, b"", {"Location": location})}
    with pytest.raises(AdminError, match="a redirect") as caught:
        asking(server).get(PATH)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://user:s3cret@127.0.0.1:1", "http://user:s3cret@h:x", "http://user:s3/cret@h", "user:s3cret@h"]
)
def test_password_in_a_url_is_refused_and_never_told(url: str) -> None:
    with pytest.raises(AdminError, match="user info") as caught:
        TopicAdmin((url,)).keeping(TOPIC)
    assert "s3" not in str(caught.value)


def test_answer_is_read_to_its_bound(server: Answering) -> None:
    admin = asking(server, largest_answer_bytes=20)
    server.answers = {("GET", f"{PATH}/retention?applied=true"): Answer(200, FOR_EVER)}
    with pytest.raises(AdminError, match="no json"):
        admin.keeping(TOPIC)
    server.answers = {("GET", PATH): Answer(500, {"reason": "long" * 20})}
    with pytest.raises(AdminError, match=r"500$"):
        admin.get(PATH)


def test_proxies_of_the_environment_are_not_for_brokers(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.answers = {("GET", PATH): Answer(200, b"4")}
    assert asking(server).get(PATH) == 4


def test_next_server_is_asked_if_one_cannot_answer(server: Answering) -> None:
    server.answers = {("GET", PATH): Answer(200, b"4")}
    nobody = "http://127.0.0.1:1"
    assert TopicAdmin((nobody, server.url)).get(PATH) == 4
    with pytest.raises(AdminError, match="connection refused") as caught:
        TopicAdmin((nobody,)).get(PATH)
    assert caught.value.status == 0


def test_server_that_never_answers_is_given_up() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = TopicAdmin((f"http://127.0.0.1:{silent.getsockname()[1]}",), timeout_seconds=0.05)
        with pytest.raises(AdminError, match="timed out"):
            admin.keeping(TOPIC)
