"""configData: the schema takes what the proxy takes, and what comes out is what was meant."""

import json
from typing import Any

import jsonschema
import pytest
import yaml
from helm_python import HelmError

from proxy.config.config import Config
from proxy.config.keys.key import BadValue, Key
from proxy.config.retired import RETIRED
from scripts.helm.render import GATEWAY
from tests.helm.charts import conf_of, config_of, gateway, proxy_container
from tests.support.each import each

SCHEMA = json.loads((GATEWAY / "values.schema.json").read_text())
KEYS = {key.name: key for key in Config.keys()}  # noqa: SIM118
TRIED: list[Any] = [
    "", "0", "1", "7", "-1", "65536", "99999999999", "1.5", "x", "true", "TRUE", "no", "none", "fifo", "FIFO",
    "127.0.0.1:7070", "[::1]:7070", "localhost:0", "pulsar://b:6650", "pulsar+ssl://b:6651", "http://b:8080",
    "https://b:8443", "10.0.0.0/8", "*", "{}", "a b", "ä", "a\nb", 0, 1, 7, -1, 65536, 99999999999, True, False,
]  # fmt: skip


def takes(key: Key[Any], value: Any) -> bool:
    """Tell whether the proxy takes a value, as text of proxy.conf."""
    text = json.dumps(value) if isinstance(value, bool | int) else value
    try:
        key.parse(text)
    except BadValue:
        return False
    return "\n" not in text and text.isascii()


def of_schema(key: Key[Any]) -> jsonschema.Draft202012Validator:
    reference = SCHEMA["properties"]["configData"]["properties"][key.name]["$ref"]
    return jsonschema.Draft202012Validator(SCHEMA["$defs"][reference.removeprefix("#/$defs/")])


@each("key", KEYS.values(), ids=lambda key: key.name)
def test_the_schema_refuses_no_text_that_the_proxy_takes(key: Key[Any]) -> None:
    for value in TRIED:
        if isinstance(value, str) and takes(key, value):
            assert of_schema(key).is_valid(value), f"{value!r}"


NUMERIC = [key for key in KEYS.values() if "number" in key.kind.expected]


@each("key", NUMERIC, ids=lambda key: key.name)
def test_the_schema_takes_the_numbers_that_the_proxy_takes_and_no_others(key: Key[Any]) -> None:
    for value in TRIED:
        if isinstance(value, int) and not isinstance(value, bool):
            assert of_schema(key).is_valid(value) == takes(key, value), f"{value!r}"


def test_every_key_may_be_written_bare_or_with_the_prefix() -> None:
    properties = SCHEMA["properties"]["configData"]["properties"]
    for name in KEYS:
        assert properties[name]["$ref"] == properties[f"PULSAR_PREFIX_{name}"]["$ref"]


def test_values_of_0_1_0_with_retired_keys_at_their_defaults_render_and_are_warnings_of_the_proxy() -> None:
    defaults = {name: yaml.safe_load(retired.kept[-1] or "''") for name, retired in RETIRED.items()}
    texts = {f"PULSAR_PREFIX_{name}": retired.kept[-1] for name, retired in RETIRED.items()}
    for keys in (defaults, texts):
        config = config_of(gateway({"configData": keys}))
        assert {warning.key for warning in config.warnings} >= set(RETIRED)


# What the charts of 0.1.0 set by themselves, the gateway's and the sidecar's, and values files copied.
OF_0_1_0 = [
    {"clientSocketSendBufferBytes": 65536, "brokerSocketReceiveBufferBytes": 262144, "relayBufferBytes": 65536},
    {"maxTopicListInFlightDirectMemSizeMB": 32, "maxHandshakeInFlightMemSizeMB": 4, "relayMemoryPoolMB": 8},
]


@each("keys", OF_0_1_0)
def test_an_upgrade_that_keeps_the_values_of_the_charts_of_0_1_0_is_not_refused(keys: dict[str, int]) -> None:
    config = config_of(gateway({"configData": keys}))
    assert {warning.key for warning in config.warnings} >= keys.keys() & RETIRED.keys()
    known = {key.name: config.value(key) for key in Config.keys()}  # noqa: SIM118
    assert {name: known[name] for name in keys if name in known} == {
        name: size for name, size in keys.items() if name not in RETIRED
    }


@each("name", RETIRED)
def test_another_value_of_a_retired_key_is_refused_in_one_line_as_the_proxy_does(name: str) -> None:
    for written, value, shown in (name, 7, "7"), (f"PULSAR_PREFIX_{name}", "x", "x"):
        with pytest.raises(HelmError) as refused:
            gateway({"configData": {written: value}})
        text = f'configData.{name}: got "{shown}", expected no such key: {RETIRED[name].instead}'
        assert str(refused.value).endswith(text)
        assert "\n" not in str(refused.value)


def test_the_charts_take_what_the_proxy_takes_of_retired_keys() -> None:
    keys = {
        "overloadMemoryHardWatermark": "0.950",
        "acceptBacklog": "04096.0",
        "adaptivePublisherThrottlingSharesByBytes": "False",
    }
    assert {warning.key for warning in config_of(gateway({"configData": keys})).warnings} >= keys.keys()


def test_the_prefix_wins_over_the_bare_name() -> None:
    config = config_of(gateway({"configData": {"clusterName": "bare", "PULSAR_PREFIX_clusterName": "prefixed"}}))
    assert config.cluster_name == "prefixed"


def test_what_the_chart_sets_gives_way_to_configdata() -> None:
    config = config_of(gateway({"configData": {"servicePort": 16650, "webServicePort": "18080"}}))
    assert (config.service_port, config.web_service_port) == (16650, 18080)


def test_false_and_nothing_win_over_what_the_chart_sets() -> None:
    token = {"token": {"enabled": True, "keySecretName": "k", "proxySecretName": "p"}}
    keys = {"authenticationEnabled": False, "clusterName": "", "checkActiveBrokers": True}
    config = config_of(gateway({"auth": token, "configData": keys}))
    assert config.authentication_enabled is False


def test_large_numbers_are_written_out() -> None:
    conf = conf_of(gateway({"configData": {"topicListMaxAnswerBytes": 52428800, "httpRequestsMaxPerSecond": 0.25}}))
    assert "topicListMaxAnswerBytes=52428800\n" in conf
    assert "httpRequestsMaxPerSecond=0.25\n" in conf


def test_variables_and_otel_go_into_the_environment_and_the_jvm_s_nowhere() -> None:
    render = gateway({"configData": {"eventLogSalt": "${SALT}", "OTEL_SDK_DISABLED": False, "PULSAR_MEM": "-Xmx1g"}})
    environ = {each["name"]: each["value"] for each in proxy_container(render)["env"]}
    assert environ == {"eventLogSalt": "${SALT}", "OTEL_SDK_DISABLED": "false"}
    assert "SALT" not in conf_of(render)
    assert "Xmx" not in render.all_text()
    assert "PULSAR_MEM" in render.notes


def template(**values: Any) -> Any:
    return gateway(values).one("Deployment")["spec"]["template"]


def test_a_live_key_restarts_no_pod_unless_memory_is_computed_from_it() -> None:
    fair = {"topicListFairness": "tenant"}
    assert template(configData={"logLevel": "debug"}) == template()
    assert template(configData=fair) != template()
    room = {"limit": "2Gi"}
    assert template(configData=fair, memory=room) == template(memory=room)
