"""Secrets, wherever a value of the configuration is shown."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from proxy.config.config import Config, ConfigError
from proxy.config.keys.key import BadValue
from proxy.config.page import config_document, pending_values
from proxy.core.secrets import masked, shown_of_unknown
from tests.support.configured import configured, refusal
from tests.support.each import each

BROKER = {"brokerServiceURL": "pulsar://b"}


def test_routes_of_the_reverse_proxy_are_shown_without_their_passwords() -> None:
    environ = {
        "PULSAR_PREFIX_httpReverseProxy.web.path": "/web",
        "PULSAR_PREFIX_httpReverseProxy.web.proxyTo": "http://user:hush@w:80/x",
    }
    document = config_document(Config.load(None, environ, BROKER), {})
    assert document["http_reverse_proxies"] == [{"name": "web", "path": "/web", "proxyTo": "http://(hidden)@w:80/x"}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:hush@host:8080/path", "http://(hidden)@host:8080/path"),
        ("http://a:1,http://hush@b:2", "http://a:1,http://(hidden)@b:2"),
        ("http://user:hu,s/h@h@host:8080", "http://(hidden)@host:8080"),
        ("me:hush@host", "(hidden)@host"),
        ("data:;base64,aHVzaA==", "data:(hidden)"),
        ("token:hush.hush.hush", "token:(hidden)"),
        ('{"Authorization": "hush", "X": "DENY"}', '{"Authorization": "(hidden)", "X": "DENY"}'),
        ('{"x": "Bearer hush.hush"}', '{"x": "Bearer (hidden)"}'),
        ('{"userId": "me", "password": "h\\"ush"}', '{"userId": "me", "password": "(hidden)"}'),
        ("file:///pulsar/tokens/token", "file:///pulsar/tokens/token"),
        ("pulsar+ssl://broker:6651,other:6651", "pulsar+ssl://broker:6651,other:6651"),
        ("blue", "blue"),
    ],
)  # fmt: skip
def test_what_looks_like_a_credential_is_hidden(value: str, shown: str) -> None:
    assert masked(value) == shown


def test_a_key_that_nobody_declared_is_hidden_by_its_name() -> None:
    assert shown_of_unknown("tlsKeyStorePassword", "hush") == "(hidden)"
    assert shown_of_unknown("saslJaasServerRoleTokenSignerSecretPath", "hush") == "(hidden)"
    assert shown_of_unknown("proxyExtensions", "mqtt") == "mqtt"
    assert shown_of_unknown("tlsKeyStorePassword", "") == ""


def test_each_secret_key_is_hidden_and_says_that_it_is_set() -> None:
    secret = [key for key in Config.keys() if key.secret]  # noqa: SIM118
    assert {"tokenSecretKey", "brokerClientAuthenticationParameters"} <= {key.name for key in secret}
    config = configured(**{key.name: "hush" * 4 for key in secret})
    document = config_document(config, {})
    assert b"hush" not in orjson.dumps(document)
    keys = document["keys"]
    assert isinstance(keys, dict)
    assert all(keys[key.name]["value"] == "(hidden)" for key in secret)


def test_a_secret_that_waits_for_a_restart_is_hidden_too() -> None:
    old = configured()
    newer = configured(tokenSecretKey="hush", clusterName="data:hush")
    pending = pending_values(old, newer)
    assert pending == {"tokenSecretKey": "(hidden)", "clusterName": "data:(hidden)"}
    keys = config_document(old, pending)["keys"]
    assert isinstance(keys, dict)
    assert keys["clusterName"]["pending_restart"] == "data:(hidden)"
    assert config_document(old, pending)["restart_needed"] == ["clusterName", "tokenSecretKey"]


# What somebody may write into a key by mistake, around a password: some keys take it, some do not.
MISTAKES = (
    "http://me:{}@h", "http://ok:8080,http://me:{}@h:8080", "pulsar://me:{}@h:6650", "pulsar+ssl://{}@h", "me:{}@h",
    "https://{}@h/path,*", "10.0.0.1,http://me:{}@h", "6700-6709,http://me:{}@h", "data:;base64,{}", "token:{}",
    "ftp://me:{}@h",
)  # fmt: skip


@pytest.mark.threat("shown-secrets")
@each("mistake", [*MISTAKES, "{}", "{}\\u0001"])
@each("password", ["hush", "hush,hush", "hush/hush", "hush@hush", "hush:hush"])
def test_no_text_about_any_key_holds_a_password_that_was_written_into_it(
    mistake: str, password: str, tmp_path: Path
) -> None:
    inline = not mistake.endswith(("h", "*"))
    if inline and set(",@") & set(password):
        return  # no form of inline data
    value = mistake.format(password)
    keys = [key for key in Config.keys() if key.secret or mistake in MISTAKES]  # noqa: SIM118
    names = [key.name for key in keys] + (
        ["httpReverseProxy.x.proxyTo", "zookeeperServers"] if mistake in MISTAKES else []
    )
    values = dict.fromkeys(names, value)
    path = tmp_path / "proxy.conf"
    path.write_text("httpReverseProxy.x.path=/x\nlogLevel=loud\n" + "".join(f"{name}={value}\n" for name in names))
    told: list[str] = []
    loads: tuple[Callable[[], Config], ...] = (
        lambda: Config.load(path),
        lambda: Config.load(None, {f"PULSAR_PREFIX_{name}": value for name in names}),
        lambda: Config.load(overrides={"logLevel": "loud"} | values),
        lambda: configured().replace(values),
    )
    for load in loads:
        with pytest.raises(ConfigError) as caught:
            load()
        told += [*map(str, caught.value.problems), *map(str, caught.value.warnings)]
    for key in keys:
        with suppress(BadValue):
            told.append(key.shown(key.parse(value.removesuffix("\\u0001"))))
    assert "hush" not in "".join(told)


def test_the_document_says_of_each_key_what_an_operator_asks(tmp_path: Path) -> None:
    path = tmp_path / "proxy.conf"
    path.write_text("# a comment\nbrokerServiceURL=pulsar://b\nclusterName=blue\n")
    config = Config.load(path, {"PULSAR_PREFIX_logFormat": "console"}, {"servicePort": "7"})
    keys = config_document(config.replace({"logLevel": "debug"}), {})["keys"]
    assert isinstance(keys, dict)
    assert keys["clusterName"] == {"value": "blue", "origin": "file", "source": f"{path}:3", "dynamic": False}
    assert keys["logFormat"]["source"] == "environment (PULSAR_PREFIX_)"
    assert (keys["servicePort"]["origin"], keys["servicePort"]["source"]) == ("flag", "command line")
    assert (keys["logLevel"]["origin"], keys["logLevel"]["dynamic"]) == ("live", True)
    assert keys["tcpUserTimeoutMillis"]["origin"] == keys["tcpUserTimeoutMillis"]["source"] == "default"
    assert set(keys) == {key.name for key in Config.keys()}  # noqa: SIM118


@pytest.mark.threat("guessed-event-hash")
@pytest.mark.parametrize("salt", ["salt", "s" * 15, "é" * 7, "a salt of 16 byt\u0007"])
def test_a_salt_that_can_be_found_by_trying_is_refused_by_its_key_and_not_shown(salt: str) -> None:
    told = str(refusal(eventLogSalt=salt))
    assert "eventLogSalt" in told
    assert "at least 16 bytes" in told
    assert salt not in told


@pytest.mark.parametrize("salt", ["", "s" * 16, "é" * 8])
def test_a_long_salt_or_none_is_taken(salt: str) -> None:
    assert configured(eventLogSalt=salt).event_log_salt == salt
