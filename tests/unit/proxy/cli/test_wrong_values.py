"""Every key with values that are wrong for most keys: `check-config` names the key, and never ends in a traceback."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy.cli.main import main
from proxy.config.config import Config

BROKER = {"brokerServiceURL": "pulsar://b"}
# Wrong for nearly each key, and wrong only where a text is expected, which a number is refused as at once.
ANYWHERE = ["", "text", "9" * 40, "\ud800"]
TEXTS = ["-1", "é☃", "a\0b", "a,,b", "{", "[::", "%", "http://", "http://[::1", "pulsar://h:70000", "/x" * 3000]
# Of the paths that are added the first is a directory, the second missing, the third no text, the last one empty.
PATHS = ["{0}", "{0}/missing", "{0}/garbage", "file://{0}/garbage", "{0}/empty", "data:;base64,!"]
NUMBERS = re.compile(r"a (whole )?number|true or false|one of|a fraction")
WORDS = re.compile(r"text without|names (of topics )?separated")
# What no key takes, no number or choice, and no key of another form than a text or a list of names.
NOWHERE, NO_NUMBERS, WORDS_ONLY = ["\ud800", "a\0b"], ["text", "9" * 40], ["é☃", "{", "[::", "%", "http://"]
NO_TOKENS = [None, "", "{", "token:", "file://[x", '{{"a":1}}']
KEYS = {key.name: key for key in Config.keys()}  # noqa: SIM118
PLUGINS = ["token", "tls", "basic", "oauth2", "none", "kerberos"]
PARAMETERS = [
    *ANYWHERE,
    *TEXTS,
    *("{{}}", "[]", '{{"a":1}}', '{{"a":' * 2000, "env:", "env:NO_SUCH", "token:", "file://[x", "file:///a%00b"),
    *("file://{0}", "file://{0}/missing", "file://{0}/garbage", "file://{0}/empty"),
    *('{{"token":"\\ud800"}}', '{{"token":""}}', "{{token:T}}", "{{token:T", "{{token:}}"),
    *("userId:a", "userId:a,password:b,c", '{{"userId":"a","password":"\\ud800"}}', '{{"userId":1,"password":null}}'),
    *("tlsCertFile:{0},tlsKeyFile:{0}", "tlsCertFile:/a", '{{"tlsCertFile":"\\u0000","tlsKeyFile":"b"}}'),
    *(
        '{{"issuerUrl":"' + issuer + '","privateKey":"' + key + '"}}'
        for issuer, key in (
            ("http://[", "file:///a"),
            ("http://h:99999", "file:///a"),
            ("http://h", "file://["),
            ("http://h", "file://{0}"),
            ("http://h", "file://{0}/garbage"),
            ("http://h", "file://{0}/missing"),
            ("http://h", "data:application/json;base64,!!"),
            ("http://h", "data:application/json,%ff"),
            ("http://h", "data:application/json,[]"),
        )
    ),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "garbage").write_bytes(b"\x00\xff\x80{{{")
    (tmp_path / "empty").touch()
    return tmp_path


def is_wrong(value: str, expected: str) -> bool:
    """Tell whether a key that expects this must not take the value; others may or may not."""
    if NUMBERS.match(expected):
        return value in NOWHERE + NO_NUMBERS
    return value in NOWHERE or (value in WORDS_ONLY and not WORDS.match(expected))


def are_wrong(parameters: str | None, plugin: str, key: str) -> bool:
    """Tell whether these must not be the parameters of a plugin; others may or may not."""
    if parameters in NOWHERE or plugin in {"none", "token"}:
        return parameters in NOWHERE or (plugin == "token" and parameters in NO_TOKENS)
    # What a file has is looked at only where it is used.
    return key.startswith("broker") or not re.search(r"\{0\}|data:", parameters or "")


def check(settings: Mapping[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    code = main(["check-config", *flags])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("value", [*ANYWHERE, *TEXTS, *PATHS], ids=lambda value: repr(value[:20]))
def test_each_key_that_is_wrong_is_named(value: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at, (name, key) in enumerate(KEYS.items()):
        if value in ANYWHERE or not NUMBERS.match(key.kind.expected):
            # Beside a plugin without parameters, which is a fault by itself.
            plugin = {"brokerClientAuthenticationPlugin": PLUGINS[at % len(PLUGINS)]} if value in TEXTS[::3] else {}
            code, err = check(BROKER | plugin | {name: value.format(place) if value in PATHS else value}, capsys)
            if is_wrong(value, key.kind.expected):
                assert (code, name in err) == (2, True), f"{name}: exit code {code}, {err}"
            else:
                named = name in err or (plugin and "brokerClientAuthentication" in err)
                assert code == 0 or (code == 2 and named), f"{name}: exit code {code}, {err}"


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("key", ["brokerClientAuthentication", "eventLogTopicAuthentication"])
def test_each_plugin_with_parameters_that_are_wrong_is_named_once(
    plugin: str, key: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The files of a certificate are looked at only where they are used.
    around = {"tlsEnabledWithBroker": "true", "brokerServiceURLTLS": "pulsar+ssl://b"} if plugin == "tls" else {}
    if key.startswith("event"):
        around["eventLogTopic"] = "persistent://a/b/c"
    for parameters in [None, *PARAMETERS]:
        given = {} if parameters is None else {f"{key}Parameters": parameters.replace("{0}", str(place))}
        given = {name: value.replace("{{", "{").replace("}}", "}") for name, value in given.items()}
        code, err = check(BROKER | around | {f"{key}Plugin": plugin} | given, capsys)
        errors = [line for line in err.splitlines() if line.startswith("error: ") and key in line]
        # Both files of a certificate may be wrong, and a file is wrong for itself and for what needs it.
        most = 1 if parameters is None else 2
        taken = code == 0 and not are_wrong(parameters, plugin, key)
        assert taken or (code == 2 and 1 <= len(errors) <= most), f"{parameters}: exit code {code}, {err}"
