"""The environment against what Pulsar's image would have written into proxy.conf (its apply-config-from-env.py)."""

from pathlib import Path

import pytest

from proxy.config.config import Config, ConfigError
from proxy.config.properties import unescape
from proxy.config.sources import settings_of

KEYS = {"clusterName", "brokerServiceURL", "statusFilePath"}


def settings(**environ: str) -> list[tuple[str, str]]:
    found = {setting.key: unescape(setting.text) for setting in settings_of(environ, KEYS.__contains__)}
    return list(found.items())


def test_a_bare_name_sets_a_key_that_the_file_has_set_or_commented() -> None:
    assert settings(clusterName="blue", PATH="/bin", clustername="red") == [("clusterName", "blue")]


def test_a_prefixed_name_sets_any_key_and_wins_over_the_bare_one() -> None:
    assert settings(clusterName="bare", PULSAR_PREFIX_clusterName="prefixed", PULSAR_PREFIX_openIDx="1") == [
        ("clusterName", "prefixed"),
        ("openIDx", "1"),
    ]


def test_blanks_are_cut_off_in_the_first_pass_only() -> None:
    assert settings(clusterName=" blue\n") == [("clusterName", "blue")]
    assert settings(PULSAR_PREFIX_clusterName=" blue ") == [("clusterName", " blue ")]
    # Cut off again where the value is read, as Java does for the line of a file.
    assert Config.load(None, {"PULSAR_PREFIX_servicePort": " 1 "}, {"brokerServiceURL": "pulsar://b"}).service_port == 1


def test_a_reference_is_followed_once_and_is_nothing_without_its_variable() -> None:
    assert settings(clusterName="${NAME}", NAME="${OTHER}", OTHER="far") == [("clusterName", "${OTHER}")]
    assert settings(clusterName=" ${ABSENT} ") == [("clusterName", "")]
    assert settings(PULSAR_PREFIX_clusterName="${NAME}", NAME="blue") == [("clusterName", "blue")]
    assert settings(clusterName="a-${NAME}", NAME="blue") == [("clusterName", "a-${NAME}")]


def test_a_value_is_read_as_the_line_of_a_properties_file() -> None:
    assert settings(clusterName="a\\\\b\\tc") == [("clusterName", "a\\b\tc")]
    with pytest.raises(ConfigError, match=r"environment: clusterName: got .*expected"):
        Config.load(None, {"clusterName": "\\u12"}, {"brokerServiceURL": "pulsar://b"})


@pytest.mark.threat("second-key-by-environment")
def test_a_value_of_several_lines_sets_no_second_key() -> None:
    environ = {"PULSAR_PREFIX_clusterName": "blue\nservicePort=1"}
    with pytest.raises(ConfigError, match=r"clusterName: got .*without control characters"):
        Config.load(None, environ, {"brokerServiceURL": "pulsar://b"})


# --- variables in secrets: `token:${NAME}` is the value of NAME, or a fault; never the text itself -------

SECRET = "brokerClientAuthenticationParameters"
WITH_TOKEN = {"brokerServiceURL": "pulsar://b", "brokerClientAuthenticationPlugin": "token"}


def test_a_variable_in_a_secret_is_replaced_once_by_its_value_and_kept_by_changes(tmp_path: Path) -> None:
    path = tmp_path / "proxy.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in WITH_TOKEN.items()) + f"{SECRET}=token:${{TOKEN}}\n")
    for config in (
        Config.load(path, {"TOKEN": "a${b}c"}),
        Config.load(None, {SECRET: "token:${TOKEN}", "TOKEN": "a${b}c"}, WITH_TOKEN),
    ):
        for changed in (config, config.replace({"logLevel": "debug"}), config.adopt(config)):
            assert changed.broker_client_authentication_parameters == "token:a${b}c"


@pytest.mark.parametrize("text", ["token:${TOKEN}", "token:${}", "token:${TOKEN", "${TOKEN}"])
def test_a_variable_that_is_not_set_is_a_fault_that_names_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "proxy.conf"
    path.write_text(f"{SECRET}={text}\n")
    with pytest.raises(ConfigError, match=rf"{SECRET}: got \$\{{.*environment variable"):
        Config.load(path, {}, WITH_TOKEN)


def test_other_keys_keep_their_text(tmp_path: Path) -> None:
    path = tmp_path / "proxy.conf"
    path.write_text("clusterName=a${b}\n")
    assert Config.load(path, {}, WITH_TOKEN | {SECRET: "token:x"}).cluster_name == "a${b}"
