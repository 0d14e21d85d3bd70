"""Tokens from a file and from an issuer; no text holds a secret."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.login import Credentials
from pipeline.sources.pulsar.options import Login
from tests.support.auth.tls import PemFiles, server_context
from tests.support.web.answering import Answer, Answering, answering

FORM = b"grant_type=client_credentials&client_id=me&client_secret=s%26t&audience=urn%3Apulsar"


@pytest.fixture
def issuer() -> Iterator[Answering]:
    with answering() as made:
        yield made


def oauth2(url: str, directory: Path) -> str:
    """Write the parameters of a login to a file."""
    key = base64.b64encode(json.dumps({"client_id": "me", "client_secret": "s&t"}).encode()).decode()
    given = {"issuer_url": f"{url}/", "private_key": f"data:application/json;base64,{key}", "audience": "urn:pulsar"}
    file = directory / "login.json"
    file.write_text(json.dumps(given))
    return str(file)


def test_token_is_read_anew_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    credentials = Credentials(Login(str(file)))
    assert credentials.headers() == {"Authorization": "Bearer one"}
    file.write_text("two\n")
    assert credentials.headers() == {"Authorization": "Bearer two"}


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopicError, match=r"--auth-file: cannot read .*/none: No such file"):
        Credentials(Login(str(tmp_path / "none"))).authentication()


def test_access_token_is_got_from_the_issuer_and_renewed_before_it_ends(issuer: Answering, tmp_path: Path) -> None:
    found = Answer(200, {"token_endpoint": f"{issuer.url}/token"})
    issuer.answers = [
        found,
        Answer(200, {"access_token": "one", "expires_in": 100}),
        found,
        Answer(200, {"access_token": "two", "expires_in": 100}),
    ]
    now = 0.0
    credentials = Credentials(Login(oauth2(issuer.url, tmp_path)), lambda: now)
    assert [credentials.token(), credentials.token()] == ["one", "one"]
    now = 41.0
    assert credentials.token() == "two"
    assert [each.path for each in issuer.asked] == ["/.well-known/openid-configuration", "/token"] * 2
    assert issuer.asked[1].body == FORM


def test_issuer_that_gives_none_is_told_without_the_secret(issuer: Answering, tmp_path: Path) -> None:
    issuer.answers = [Answer(200, {"token_endpoint": f"{issuer.url}/token"}), Answer(400, b"bad secret s&t")]
    with pytest.raises(TopicError, match=f"--auth-file: {issuer.url} gave no access token: HTTPError 400$"):
        Credentials(Login(oauth2(issuer.url, tmp_path))).token()


def test_secret_does_not_leave_https(issuer: Answering, tmp_path: Path) -> None:
    trust = str(PemFiles.write(tmp_path).trust)
    with answering(server_context()) as secure:
        secure.answers = [Answer(200, {"token_endpoint": f"{issuer.url}/token"})]
        with pytest.raises(TopicError, match="gave no access token"):
            Credentials(Login(oauth2(secure.url, tmp_path), tls_trust=trust)).token()
        assert secure.asked
    assert issuer.asked == []


def test_parameters_that_are_none_are_refused_without_telling_them(tmp_path: Path) -> None:
    file = tmp_path / "login.json"
    file.write_text('{"client_secret": "hunter2"}')
    with pytest.raises(TopicError, match="expected JSON with issuer_url and private_key") as error:
        Credentials(Login(str(file))).token()
    assert "hunter2" not in str(error.value)
