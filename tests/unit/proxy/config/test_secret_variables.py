"""Variables in secrets: `token:${NAME}` is the value of NAME, or a fault; never the text itself."""

from pathlib import Path

import pytest

from proxy.config.config import Config, ConfigError

KEY = "brokerClientAuthenticationParameters"


def load(tmp_path: Path, line: str, **environ: str) -> Config:
    path = tmp_path / "proxy.conf"
    path.write_text(f"brokerServiceURL=pulsar://broker:6650\nbrokerClientAuthenticationPlugin=token\n{line}\n")
    return Config.load(path, environ)


def test_a_variable_in_a_secret_is_replaced_by_its_value(tmp_path: Path) -> None:
    config = load(tmp_path, f"{KEY}=token:${{TOKEN}}", TOKEN="own-secret")
    assert config.broker_client_authentication_parameters == "token:own-secret"


@pytest.mark.parametrize("text", ["token:${TOKEN}", "token:${}", "token:${TOKEN", "${TOKEN}"])
def test_a_variable_that_is_not_set_is_a_fault_that_names_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"{KEY}={text}")
    assert f"{KEY}: got ${{" in str(refused.value)
    assert "environment variable" in str(refused.value)


def test_a_variable_in_the_environment_is_replaced_too() -> None:
    given = {"brokerServiceURL": "pulsar://broker:6650", "brokerClientAuthenticationPlugin": "token"}
    config = Config.load(None, {**given, KEY: "token:${TOKEN}", "TOKEN": "own-secret"})
    assert config.broker_client_authentication_parameters == "token:own-secret"


def test_a_value_is_replaced_once_and_kept_by_changes(tmp_path: Path) -> None:
    config = load(tmp_path, f"{KEY}=token:${{TOKEN}}", TOKEN="a${b}c")
    for changed in (config.replace({"logLevel": "debug"}), config.adopt(config)):
        assert changed.broker_client_authentication_parameters == "token:a${b}c"


def test_other_keys_keep_their_text(tmp_path: Path) -> None:
    config = load(tmp_path, f"clusterName=a${{b}}\n{KEY}=token:x")
    assert config.cluster_name == "a${b}"
