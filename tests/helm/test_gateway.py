"""What single values of the gateway chart bring, and what they leave alone."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import HelmError, dependency_list, lint

from proxy.core.version import VERSION
from scripts.helm.render import EXAMPLE, GATEWAY, LIBRARY, LoadedChart, Render, read_values
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


METRICS = {"metricsPort": 15650}


def shown(render: Render) -> list[str]:
    return [port["name"] for port in render.one("Service")["spec"]["ports"]]


def asked(render: Render) -> set[str]:
    container = proxy_container(render)
    return {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}


def test_the_web_ports_leave_the_service_and_stay_for_probes() -> None:
    render = gateway({"service": {"web": False}})
    assert shown(render) == ["pulsar"]
    assert asked(render) == {"http"}
    assert config_of(render).web_service_port == 8080
    tls = {"tls": {"enabled": True, "secretName": "proxy-tls"}}
    assert shown(gateway({**tls, "service": {"web": False}})) == ["pulsarssl"]


def test_no_note_names_a_web_port_that_the_service_does_not_show() -> None:
    assert "Admin API: http://" in gateway({}).notes
    assert "Admin API" not in gateway({"service": {"web": False}}).notes


WEB_IS_OPEN = "Clients that reach the Service's web ports without credentials"
PLAIN_CLIENTS = {"configData": {"authenticationEnabled": False}}
SECURED = {"authenticationEnabled": True, "authenticationProviders": "token", "tokenPublicKey": "/keys/public.pem",
           "checkActiveBrokers": True}  # fmt: skip


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_web_ports_outside_of_the_cluster_without_credentials_are_named(kind: str) -> None:
    assert WEB_IS_OPEN in gateway({"service": {"type": kind}, **PLAIN_CLIENTS}).notes


@pytest.mark.parametrize("values", [
    PLAIN_CLIENTS,
    {"service": {"type": "LoadBalancer", "web": False}, **PLAIN_CLIENTS},
    {"service": {"type": "LoadBalancer"}, "configData": SECURED},
], ids=["inside", "not shown", "with credentials"])  # fmt: skip
def test_web_ports_that_no_stranger_reaches_are_not_named(values: dict[str, Any]) -> None:
    assert WEB_IS_OPEN not in gateway(values).notes


@pytest.mark.parametrize("web_port", [8080, ""])
def test_a_port_for_monitors_is_asked_by_probes_and_monitors_and_is_not_in_the_service(web_port: object) -> None:
    render = gateway({"configData": {**METRICS, "webServicePort": web_port}, "podMonitor": {"enabled": True}})
    assert {"name": "metrics", "containerPort": 15650, "protocol": "TCP"} in proxy_container(render)["ports"]
    assert asked(render) == {"metrics"}
    assert "metrics" not in shown(render)
    (endpoint,) = render.one("PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"


@pytest.mark.parametrize(("values", "message"), [
    ({"configData": {"webServicePort": ""}}, "configData.webServicePort: got nothing, expected a port, or configData."),
    ({"service": {"web": False}, "serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled: got true with service"),
])  # fmt: skip
def test_a_gateway_that_cannot_be_reached_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        gateway(values)
    assert message in str(refused.value)


def pod_of(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = gateway(values).one("Deployment")["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dnsConfig", {"options": [{"name": "ndots", "value": "1"}]}),
        ("dnsPolicy", "None"),
        ("hostAliases", [{"ip": "192.0.2.7", "hostnames": ["broker-1.example"]}]),
        ("hostNetwork", True),
        ("topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]),
    ],
)
def test_a_field_of_the_pod_stands_in_it_as_it_was_given_and_else_not(name: str, value: object) -> None:
    assert pod_of({name: value})[name] == value
    assert name not in pod_of({}) or name == "topologySpreadConstraints"


def test_pods_on_the_network_of_the_node_still_find_services_of_the_cluster() -> None:
    assert pod_of({"hostNetwork": True})["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert pod_of({"hostNetwork": True, "dnsPolicy": "Default"})["dnsPolicy"] == "Default"


def test_a_sleep_before_the_signal_lengthens_the_grace_period_by_itself() -> None:
    hook = {"preStop": {"sleep": {"seconds": 7}}}
    assert proxy_container(gateway({"lifecycle": hook}))["lifecycle"] == hook
    plain, later = (pod_of(values)["terminationGracePeriodSeconds"] for values in ({}, {"lifecycle": hook}))
    assert later == plain + 7


def test_labels_of_the_operator_stand_on_every_object_and_pod_and_select_nothing() -> None:
    render = gateway({"commonLabels": {"team": "m"}, "networkPolicy": {"enabled": True}})
    assert {document["metadata"]["labels"]["team"] for document in render.documents} == {"m"}
    deployment = render.one("Deployment")
    assert deployment["spec"]["template"]["metadata"]["labels"]["team"] == "m"
    # A selector cannot be changed: a label in it could be neither added nor removed.
    assert "team" not in deployment["spec"]["selector"]["matchLabels"]
    assert "team" not in render.one("Service")["spec"]["selector"]


def test_every_object_is_in_the_namespace_that_was_given() -> None:
    render = gateway({"namespaceOverride": "messaging", "networkPolicy": {"enabled": True}})
    assert {document["metadata"]["namespace"] for document in render.documents} == {"messaging"}
    assert "pulsar-proxy.messaging:6650" in render.notes


def bumped(folder: Path, version: str) -> LoadedChart:
    """Return a copy of the chart that differs in its version alone."""
    for path in (GATEWAY, LIBRARY):
        shutil.copytree(path, folder / path.name, symlinks=True, ignore=shutil.ignore_patterns("LICENSE"))
        about = read_values(folder / path.name / "Chart.yaml")
        about["version"] = about["appVersion"] = version
        for needed in about.get("dependencies", ()):
            needed["version"] = version
        (folder / path.name / "Chart.yaml").write_text(yaml.safe_dump(about))
    return LoadedChart(folder / GATEWAY.name)


def test_a_newer_chart_with_the_same_image_replaces_no_pod(tmp_path: Path) -> None:
    values = {"configData": BROKERS, "image": {"tag": "1.2.3"}}
    old, new = (loaded.render(values).one("Deployment") for loaded in (chart(GATEWAY), bumped(tmp_path, "9.9.9")))
    assert old["spec"]["template"] == new["spec"]["template"]
    assert old["spec"]["selector"] == new["spec"]["selector"]
    assert new["metadata"]["labels"]["helm.sh/chart"].endswith("-9.9.9"), "the Deployment itself still says it"


def test_pods_are_scaled_by_the_share_of_a_core_that_they_use_whatever_they_request() -> None:
    def target(**more: Any) -> dict[str, Any]:
        found = gateway({"autoscaling": {"enabled": True}, **more}).one("HorizontalPodAutoscaler")["spec"]["metrics"]
        (metric,) = (each["resource"] for each in found if each["type"] == "Resource")
        return dict(metric["target"])

    assert target() == {"type": "AverageValue", "averageValue": "700m"}
    assert target(resources={"requests": {"cpu": "2"}}) == target()


@pytest.mark.parametrize(
    ("key", "address"), [("bindAddress", "localhost"), ("bindAddress", "[::1]"), ("webBindAddress", "127.1.2.3")]
)
def test_a_gateway_on_the_loopback_of_its_pod_is_refused(key: str, address: str) -> None:
    with pytest.raises(HelmError, match=rf"configData\.{key}: got {re.escape(address)}, expected an address"):
        gateway({"configData": {key: address}})
    with pytest.raises(HelmError, match=rf"configData\.{key}: got {re.escape(address)}"):
        gateway({"extraEnvs": [{"name": f"PULSAR_PREFIX_{key}", "value": address}]})


@pytest.mark.parametrize("name", ["app.kubernetes.io/name", "component", "helm.sh/chart"])
def test_a_label_that_is_the_chart_s_own_is_refused(name: str) -> None:
    with pytest.raises(HelmError, match=rf"commonLabels: got {name}"):
        gateway({"commonLabels": {name: "mine"}})


# Of its version 4.7.0: what means the same here, with the values that it has there; null where the chart has no value.
SAME: dict[str, Any] = {
    "replicaCount": 3,
    "autoscaling": {"enabled": False, "minReplicas": 1, "maxReplicas": 3, "metrics": None, "behavior": None},
    "updateStrategy": {"type": "RollingUpdate"},
    "initContainers": [],
    "podMonitor": {
        "enabled": True, "interval": "60s", "scrapeTimeout": "60s", "metricRelabelings": None,
        "dropUnderscoreCreatedMetrics": {"enabled": True},
    },
    "restartPodsOnConfigMapChange": False,
    "probe": {
        "liveness": {"enabled": True, "failureThreshold": 10, "initialDelaySeconds": 30, "periodSeconds": 10,
                     "timeoutSeconds": 5},
        "readiness": {"enabled": True, "failureThreshold": 10, "initialDelaySeconds": 30, "periodSeconds": 10,
                      "timeoutSeconds": 5},
        "startup": {"enabled": False, "failureThreshold": 30, "initialDelaySeconds": 60, "periodSeconds": 10,
                    "timeoutSeconds": 5},
    },
    "topologySpreadConstraints": [],
    "appAnnotations": {},
    "annotations": {},
    "tolerations": [],
    "nodeSelector": {"pool": "high"},
    "priorityClassName": "high",
    "extraVolumes": [],
    "extraVolumeMounts": [],
    "extraEnvs": [],
    "configData": {
        "PULSAR_MEM": "-Xms64m -Xmx128m -XX:MaxDirectMemorySize=128m\n",
        "PULSAR_GC": "-XX:+UseZGC -XX:+ZGenerational\n",
        "httpNumThreads": "8",
    },
    "ports": {"http": 80, "https": 443, "pulsar": 6650, "pulsarssl": 6651,
              "containerPorts": {"http": 8080, "https": 8443}},
    "service": {"type": "ClusterIP", "annotations": {}, "loadBalancerIP": "",
                "nodePorts": {"http": "", "https": "", "pulsar": "", "pulsarssl": ""}},
    "pdb": {"usePolicy": True, "maxUnavailable": 1},
}  # fmt: skip
# What this chart does not have: refused, so that nobody believes that it does something.
REFUSED: dict[str, Any] = {
    "component": "proxy",
    "gracePeriod": 30,
    "affinity": {"anti_affinity": True},
    "waitZookeeperTimeout": 600,
    "waitOxiaTimeout": 600,
    "waitBrokerTimeout": 120,
    "service_account": {"annotations": {}},
    "additionalCommand": "update-ca-certificates",
    "ingress": {"enabled": False},
    "resources": {"requests": {"memory": "128Mi", "cpu": 0.2}},
}


def test_all_that_means_the_same_is_taken_as_it_stands() -> None:
    render = chart(GATEWAY).render({**SAME, "pulsar": {"release": "pulsar"}})
    assert config_of(render).broker_service_url == "pulsar://pulsar-broker:6650"
    assert "null" not in render.all_text()


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused_by_name(name: str) -> None:
    with pytest.raises(HelmError) as refused:
        gateway({name: REFUSED[name]})
    assert name in str(refused.value)


def test_a_port_that_is_off_opens_no_other_in_the_network_policy() -> None:
    render = gateway({"networkPolicy": {"enabled": True}, "configData": {"servicePort": ""}})
    for rule in render.one("NetworkPolicy")["spec"]["ingress"]:
        assert rule["ports"], "without a list, a rule is for every port"
