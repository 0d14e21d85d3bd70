"""What single values of the gateway chart bring, and what they leave alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from helm_python import dependency_list, lint

from proxy.core.version import VERSION
from scripts.helm.render import EXAMPLE, GATEWAY, LIBRARY, read_values
from tests.helm.charts import BROKERS, chart, config_of, gateway, proxy_container


def test_rules_and_dashboards_of_this_repository_are_all_in_it() -> None:
    render = gateway({"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}})
    groups = [group for path in sorted(GATEWAY.glob("rules/*.yaml")) for group in read_values(path)["groups"]]
    rendered = [group for rule in render.of_kind("PrometheusRule") for group in rule["spec"]["groups"]]
    assert rendered == groups
    files = {path.name: path.read_text() for path in GATEWAY.glob("dashboards/*.json")}
    maps = [each["data"] for each in render.of_kind("ConfigMap") if "dashboard" in each["metadata"]["name"]]
    assert {name: text for data in maps for name, text in data.items()} == files
    for text in files.values():
        json.loads(text)


def test_pulsar_s_release_names_brokers_secrets_and_the_service() -> None:
    values = {"pulsar": {"release": "prod"}, "auth": {"token": {"enabled": True}}, "tls": {"enabled": True}}
    render = chart(GATEWAY).render(values)
    volumes = render.one("Deployment")["spec"]["template"]["spec"]["volumes"]
    found = {
        volume["secret"]["secretName"]: {item["path"]: item["key"] for item in volume["secret"]["items"]}
        for volume in volumes
        if "secret" in volume
    }
    assert found == {
        "prod-token-symmetric-key": {"token/secret.key": "SECRETKEY"},
        "prod-token-proxy-admin": {"proxy/token": "TOKEN"},
        "prod-tls-proxy": {"tls.crt": "tls.crt", "tls.key": "tls.key"},
    }
    assert render.one("Service")["metadata"]["name"] == "prod-pulsar-proxy"


def test_brokers_follow_from_pulsar_s_release() -> None:
    plain = config_of(chart(GATEWAY).render({"pulsar": {"release": "prod"}}))
    assert plain.broker_service_url == "pulsar://prod-pulsar-broker:6650"
    tls = config_of(chart(GATEWAY).render({"pulsar": {"release": "pulsar"}, "tls": {"broker": {"enabled": True}}}))
    assert tls.broker_service_url_tls == "pulsar+ssl://pulsar-broker:6651"
    assert tls.broker_web_service_url_tls == ("https://pulsar-broker:8443",)


def test_the_service_has_the_ports_of_pulsar_s_own() -> None:
    def ports(**values: Any) -> dict[str, int]:
        return {port["name"]: port["port"] for port in gateway(values).one("Service")["spec"]["ports"]}

    assert ports() == {"http": 80, "pulsar": 6650}
    assert ports(tls={"enabled": True, "secretName": "s"}) == {"https": 443, "pulsarssl": 6651}


def test_two_releases_in_one_namespace_share_no_name() -> None:
    values = {"configData": BROKERS}
    one, two = (
        chart(GATEWAY).render(values, release=name).one("Service")["metadata"]["name"] for name in ("a", "pulsar")
    )
    assert one != two


def test_names_stay_within_what_kubernetes_takes() -> None:
    values = {
        "configData": BROKERS,
        "pipeline": {"enabled": True, "source": "pulsar://b:6650/a/b/c", "adminUrl": "http://b:80"},
    }
    for document in chart(GATEWAY).render(values, release="r" * 53).documents:
        assert len(document["metadata"]["name"]) <= (52 if document["kind"] == "CronJob" else 63)


def test_who_drains_gets_no_clients_and_is_not_restarted_for_it() -> None:
    container = proxy_container(gateway({}))
    asked = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
    # A drain fails /readyz; a liveness probe that asked there would cut it short.
    assert asked == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}


@pytest.mark.parametrize("path", [GATEWAY, LIBRARY, EXAMPLE], ids=lambda path: path.name)
def test_helm_s_own_lint_finds_nothing(path: Path) -> None:
    values = {"configData": BROKERS} if path == GATEWAY else {}
    report = lint(path, values, strict=True, kube_version="v1.31.0")
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1 and "icon" not in each["error"]] == []
    assert {each["status"] for each in dependency_list(path)} <= {"ok", "unpacked"}


@pytest.mark.parametrize("path", [GATEWAY, LIBRARY], ids=lambda path: path.name)
def test_charts_and_proxy_have_one_version(path: Path) -> None:
    about = read_values(path / "Chart.yaml")
    assert about["version"] == about["appVersion"] == VERSION
    assert all(each["version"] == VERSION for each in about.get("dependencies", ()))
