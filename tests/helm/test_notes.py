"""NOTES name what the operator has to know of the values: secrets in plain text, a limit below the sum."""

from typing import Any

import pytest

from proxy.config.config import Config
from scripts.helm.keys import table
from scripts.helm.render import EXAMPLE
from tests.helm.charts import BROKERS, chart, example, gateway

PLAIN = "Secrets in plain text"
TOKEN = {"brokerClientAuthenticationPlugin": "token", "brokerProxyAllowedHostNames": "pulsar-broker"}
PARAMETERS = "brokerClientAuthenticationParameters"


def notes(configData: dict[str, Any], **more: Any) -> str:
    return gateway({"configData": configData, **more}).notes


@pytest.mark.parametrize("seconds", [0, 7])
def test_the_time_to_stop_is_that_of_the_pod(seconds: int) -> None:
    lifecycle = {"preStop": {"sleep": {"seconds": seconds}}} if seconds else {}
    render = gateway({"lifecycle": lifecycle})
    grace = render.one("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert f"Stop:      {grace} s at most" in render.notes
    assert ("lifecycle.preStop.sleep" in render.notes) == bool(seconds)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PARAMETERS, "token:S3CRET"),
        (PARAMETERS, '{"userId": "proxy", "password": "S3CRET"}'),
        (PARAMETERS, '{"privateKey": "data:application/json;base64,S3CRET"}'),
        ("tokenSecretKey", "S3CRETS3CRETS3CRETS3CRET"),
        ("eventLogSalt", "S3CRET-of-sixteen-bytes"),
        ("PULSAR_PREFIX_eventLogSalt", "S3CRET-of-sixteen-bytes"),
        ("brokerWebServiceURL", "http://proxy:S3CRET@pulsar-broker:8080"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer S3CRET"),
    ],
)
def test_a_secret_in_plain_text_is_named_and_not_shown(key: str, value: str) -> None:
    found = notes({**TOKEN, key: value})
    assert PLAIN in found
    assert f"configData.{key.removeprefix('PULSAR_PREFIX_')}" in found
    assert "S3CRET" not in found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (PARAMETERS, "file:///pulsar/tokens/proxy/token"),
        (PARAMETERS, "token:${TOKEN}"),
        (PARAMETERS, "env:TOKEN"),
        (PARAMETERS, "tlsCertFile:/a/tls.crt,tlsKeyFile:/a/tls.key"),
        (PARAMETERS, '{"userId": "proxy", "password": "${PASSWORD}"}'),
        (PARAMETERS, '{"privateKey": "file:///key.json", "issuerUrl": "https://issuer.example"}'),
        ("basicAuthConf", "/pulsar/htpasswd"),
        ("tokenPublicKey", "data:;base64,cHVibGlj"),
        ("brokerWebServiceURL", "http://pulsar-broker:8080"),
    ],
)
def test_a_file_a_variable_and_a_public_value_are_no_secret_in_plain_text(key: str, value: str) -> None:
    assert PLAIN not in notes({**TOKEN, key: value})


def test_a_secret_in_the_environment_is_named_unless_a_secret_has_it() -> None:
    literal = {"name": PARAMETERS, "value": "token:S3CRET"}
    reference = {"name": PARAMETERS, "valueFrom": {"secretKeyRef": {"name": "s", "key": "TOKEN"}}}
    assert f"extraEnvs {PARAMETERS}" in notes(TOKEN, extraEnvs=[literal])
    assert PLAIN not in notes(TOKEN, extraEnvs=[reference])


def test_every_key_that_the_proxy_hides_is_known_to_the_charts() -> None:
    hidden = {key.name for key in Config.keys() if key.secret}  # noqa: SIM118
    assert hidden
    assert all(f'"{name}": {{' in table() and '"secret": true' in _line_of(name) for name in hidden)


def _line_of(name: str) -> str:
    return next(line for line in table().splitlines() if line.strip().startswith(f'"{name}":'))


def test_an_application_s_notes_have_those_of_its_sidecar() -> None:
    assert PLAIN in example({"configData": {**BROKERS, "eventLogSalt": "S3CRET-of-sixteen-bytes"}}).notes
    assert chart(EXAMPLE).render({}).notes.strip() == ""


def test_keys_that_are_gone_are_named_and_are_none_of_the_java_proxy_s() -> None:
    found = notes({"acceptBacklog": 4096, "PULSAR_PREFIX_relayEngine": "auto", "zookeeperServers": ""})
    assert "remove them: PULSAR_PREFIX_relayEngine, acceptBacklog" in found
    assert "only the Java proxy has them: zookeeperServers" in found
    assert "remove them" not in notes({})


def test_a_limit_below_the_sum_is_told_what_it_means() -> None:
    given = {"memory": {"limit": "512Mi", "allowLess": True}}
    assert "the kernel ends the pod" in gateway(given).notes
    assert "the kernel ends the pod" not in gateway({}).notes
