import asyncio
import base64
import json
from pathlib import Path
from typing import Any, cast

import pytest

from proxy.auth.identity import AuthData
from proxy.auth.own.broker_credentials import MAX_FILE_BYTES, BrokerCredentials, Plain
from proxy.auth.own.oauth2 import read_key
from proxy.auth.own.plugins import own_credentials
from proxy.config.config import Config, ConfigError
from proxy.config.credential_parameters import PARAMETERS, PLUGIN, BadParameters, parse_credentials
from proxy.core.errors import CredentialsUnavailable

JAVA = "org.apache.pulsar.client.impl.auth."
KEY = {"type": "client_credentials", "client_id": "me", "client_secret": "s3cret"}
OAUTH2 = {"issuerUrl": "https://issuer.example/", "privateKey": "file:///key.json", "audience": "urn:pulsar"}


def made(plugin: str, parameters: str) -> BrokerCredentials:
    credentials = own_credentials(plugin, parameters, lambda _: None, cast(Any, None))
    assert isinstance(credentials, Plain)
    return credentials


def current(plugin: str, parameters: str) -> AuthData | None:
    return asyncio.run(made(plugin, parameters).current())


@pytest.mark.parametrize("plugin", ["", " ", "none", "AuthenticationDisabled", JAVA + "AuthenticationDisabled"])
def test_no_plugin_is_no_credentials(plugin: str) -> None:
    assert current(plugin, "token:unused") is None


@pytest.mark.parametrize("plugin", ["token", "Token", "AuthenticationToken", JAVA + "AuthenticationToken"])
@pytest.mark.parametrize("parameters", ["token:a.b.c", "a.b.c", '{"token": "a.b.c"}', " token:a.b.c \n"])
def test_a_token_is_given_as_the_java_client_takes_it(plugin: str, parameters: str) -> None:
    assert current(plugin, parameters) == AuthData("token", b"a.b.c")


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "with space"
    path.write_text("one\n")
    given = made("token", f"file://{tmp_path}/with%20space")
    assert asyncio.run(given.current()) == AuthData("token", b"one")
    path.write_text("two")
    assert asyncio.run(given.current()) == AuthData("token", b"two")


def test_a_token_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = made("token", "env:THE_TOKEN")
    with pytest.raises(CredentialsUnavailable, match="THE_TOKEN"):
        asyncio.run(given.current())
    monkeypatch.setenv("THE_TOKEN", "a.b.c")
    assert asyncio.run(given.current()) == AuthData("token", b"a.b.c")


@pytest.mark.parametrize("content", [None, b"", b" \n", bytes(MAX_FILE_BYTES + 1)])
def test_a_file_without_a_token_is_told_by_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CredentialsUnavailable, match=f"{PARAMETERS}: {path}"):
        asyncio.run(made("token", f"file://{path}").current())


@pytest.mark.parametrize(
    "parameters", ["tlsCertFile:/c.pem,tlsKeyFile:/k.pem", '{"tlsCertFile": "/c.pem", "tlsKeyFile": "/k.pem"}']
)
@pytest.mark.parametrize("plugin", ["tls", JAVA + "AuthenticationTls"])
def test_a_certificate_is_shown_by_tls_and_named_in_connect(plugin: str, parameters: str) -> None:
    given = made(plugin, parameters)
    assert given.tls_files() == ("/c.pem", "/k.pem")
    assert asyncio.run(given.current()) == AuthData("tls", b"")
    assert made("token", "token:a").tls_files() is None


@pytest.mark.parametrize("plugin", ["basic", JAVA + "AuthenticationBasic"])
def test_user_and_password_are_one_text(plugin: str) -> None:
    assert current(plugin, '{"userId": "me", "password": "pa:ss"}') == AuthData("basic", b"me:pa:ss")


TOKEN, PAIR = AuthData("token", b"a.b.c"), AuthData("basic", b"me:pass")


@pytest.mark.parametrize(
    ("plugin", "parameters", "shown", "warning"),
    [
        # A shell took the double quotes: the Java client's parser reads all of these.
        ("token", "{token:a.b.c}", TOKEN, "double quotes"),
        ("token", "{'token':'a.b.c'}", TOKEN, "double quotes"),
        ("token", '{token:"a.b.c"; "other":\'x\'}', TOKEN, "double quotes"),
        ("basic", "{'userId':'me','password':'pa\\'s\"'}", AuthData("basic", b"me:pa's\""), "double quotes"),
        ("basic", '{"userId": "me", "password": 1234}', AuthData("basic", b"me:1234"), ""),
        ("basic", "userId:me,password:pass", PAIR, ""),
        # Quotes that no shell took: the Java client sends them, and every broker refuses it.
        ("token", "'token:a.b.c'", TOKEN, "quotes around"),
        # As the Java client has it: what is meant is not known.
        ("token", "token:a.b.c,other:x", AuthData("token", b"a.b.c,other:x"), "all of it is taken for the token"),
    ],
)
def test_parameters_are_read_as_the_java_client_reads_them_and_odd_ones_are_told(
    plugin: str, parameters: str, shown: AuthData, warning: str
) -> None:
    assert current(plugin, parameters) == shown
    given = {PLUGIN: plugin, PARAMETERS: parameters, "checkActiveBrokers": "true"}
    config = Config.load(overrides={"brokerServiceURL": "pulsar://b:6650", "tlsEnabledWithBroker": "false"} | given)
    texts = [found.text for found in config.warnings if found.key == PARAMETERS]
    assert [warning in text for text in texts] == [True] * bool(warning)
    assert not [text for text in texts for secret in ("a.b.c", "pass", "pa's", "a b") if secret in text]


@pytest.mark.parametrize(
    ("plugin", "parameters", "key"),
    [
        # Nobody can say where a text without quotes ends.
        ("token", "{token:secret", PARAMETERS),
        ("token", "{token:sec#ret}", PARAMETERS),
        ("token", '{"token":"secret\\ud800"}', PARAMETERS),
        ("token", '{"token":{"secret":1}}', PARAMETERS),
        ("token", "file://[secret", PARAMETERS),
        ("basic", "{userId:me,password:sec,ret}", PARAMETERS),
        ("oauth2", json.dumps({**OAUTH2, "issuerUrl": "https://[secret"}), PARAMETERS),
        ("kerberos", "", PLUGIN),
        ("token", "", PARAMETERS),
        ("token", "file://host/secret", PARAMETERS),
        ("tls", "tlsCertFile:/secret", PARAMETERS),
        ("basic", '{"userId": "secret"}', PARAMETERS),
        ("basic", '["secret"]', PARAMETERS),
        ("oauth2", json.dumps({**OAUTH2, "type": "secret"}), PARAMETERS),
        ("oauth2", json.dumps({**OAUTH2, "issuerUrl": "ftp://secret"}), PARAMETERS),
        ("oauth2", json.dumps({**OAUTH2, "privateKey": "secret"}), PARAMETERS),
    ],
)
def test_what_cannot_be_is_refused_by_its_key_and_never_shown(plugin: str, parameters: str, key: str) -> None:
    with pytest.raises(BadParameters) as refused:
        parse_credentials(plugin, parameters)
    assert refused.value.key == key
    assert "secret" not in str(refused.value)


def test_a_fault_of_the_configuration_hides_the_parameters() -> None:
    given = {
        "brokerServiceURL": "pulsar://b:6650",
        "brokerClientAuthenticationPlugin": "basic",
        "brokerClientAuthenticationParameters": '{"password": "hush"}',
    }
    with pytest.raises(ConfigError) as refused:
        Config.load(overrides=given)
    (problem,) = refused.value.problems
    assert problem.key == PARAMETERS
    assert "hush" not in str(refused.value)


def test_nothing_shows_what_is_presented() -> None:
    assert "hush" not in repr(made("token", "token:hush"))
    assert "hush" not in repr(Plain(lambda: AuthData("token", b"hush")))
    assert "hush" not in repr(parse_credentials("token", "token:hush"))
    assert "hush" not in repr(parse_credentials("basic", '{"userId": "me", "password": "hush"}'))
    given = json.dumps({**OAUTH2, "privateKey": "data:application/json,hush"})
    assert "hush" not in repr(parse_credentials("oauth2", given))


@pytest.mark.parametrize("form", ["file", "base64", "text"])
def test_a_key_file_is_read_as_the_java_client_has_it(tmp_path: Path, form: str) -> None:
    text = json.dumps(KEY)
    (tmp_path / "key.json").write_text(text)
    url = {
        "file": f"file://{tmp_path}/key.json",
        "base64": "data:application/json;base64," + base64.b64encode(text.encode()).decode(),
        "text": "data:application/json," + text,
    }[form]
    assert read_key(url) == ("me", "s3cret")


@pytest.mark.parametrize("text", ["hush", "[]", "{}", '{"client_id": "me", "client_secret": 1}'])
def test_a_key_file_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(CredentialsUnavailable) as refused:
        read_key("data:application/json," + text)
    assert "hush" not in str(refused.value)
