"""What an operator may add to the gateway's pods, what replaces pods, and what scales them."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helm_python import HelmError

from scripts.helm.render import GATEWAY, LIBRARY, LoadedChart, read_values
from tests.helm.charts import BROKERS, chart, gateway, proxy_container


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


@pytest.mark.parametrize("key", ["bindAddress", "webBindAddress"])
@pytest.mark.parametrize("address", ["localhost", "[::1]", "127.1.2.3"])
def test_a_gateway_on_the_loopback_of_its_pod_is_refused(key: str, address: str) -> None:
    with pytest.raises(HelmError, match=rf"configData\.{key}: got {re.escape(address)}, expected an address"):
        gateway({"configData": {key: address}})
    with pytest.raises(HelmError, match=rf"configData\.{key}: got {re.escape(address)}"):
        gateway({"extraEnvs": [{"name": f"PULSAR_PREFIX_{key}", "value": address}]})


@pytest.mark.parametrize("name", ["app.kubernetes.io/name", "component", "helm.sh/chart"])
def test_a_label_that_is_the_chart_s_own_is_refused(name: str) -> None:
    with pytest.raises(HelmError, match=rf"commonLabels: got {name}"):
        gateway({"commonLabels": {name: "mine"}})
