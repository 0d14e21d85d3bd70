"""`helm upgrade` from 0.1.0 and `helm rollback`: the cluster takes both, and pods of both versions serve meanwhile.

`of_0_1_0` has values of users of that chart, and what it made of them.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from proxy.app.memory.budget import worst_case_bytes
from proxy.config.config import Config
from proxy.config.retired import RETIRED
from scripts.helm.render import EXAMPLE, GATEWAY, Document, Render, read_values
from tests.helm.charts import chart, conf_of, config_of, environ_of, proxy_container

BEFORE = Path(__file__).parent / "of_0_1_0"
NAMES = ("gateway-all", "gateway-default", "gateway-secured", "orders-plain")
# Known to 0.1.0, whose charts left them at their defaults.
WRITTEN_SINCE = {"clientSocketSendMemoryMB", "maxConcurrentLookupRequestMB"}
MIB = 1024 * 1024

named = pytest.mark.parametrize("name", NAMES)


@cache
def before(name: str) -> Render:
    return Render({f"{name}.yaml": (BEFORE / f"{name}.yaml").read_text()})


@cache
def now(name: str) -> Render:
    """Give what today's chart makes of the same values, without rules and dashboards, as `before` has it."""
    values = read_values(BEFORE / f"{name}-values.yaml")
    return Render({f"{name}.yaml": chart(GATEWAY if name.startswith("gateway") else EXAMPLE).render(values).all_text()})


def objects(render: Render) -> dict[tuple[str, str, str], Document]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in render.documents
    }


def kept_of(document: Document) -> dict[str, Any]:
    """Give what Kubernetes refuses to change, or what makes another object of it for who knows it."""
    spec = document.get("spec", {})
    match document["kind"]:
        case "Deployment":
            return {"apiVersion": document["apiVersion"], "selector": spec["selector"]}
        case "PersistentVolumeClaim":
            return {name: value for name, value in spec.items() if name != "resources"}
        case "Service":
            ports = {port["name"]: (port["port"], port.get("nodePort")) for port in spec["ports"]}
            return {"type": spec["type"], "clusterIP": spec.get("clusterIP"), "ports": ports}
        case _:
            return {"apiVersion": document["apiVersion"]}


def selectors(render: Render) -> Iterator[dict[str, str]]:
    """Yield what finds the proxy's pods while there are some of each version."""
    for document in render.documents:
        spec = document.get("spec", {})
        match document["kind"]:
            case "Service":
                yield spec["selector"]
            case "PodDisruptionBudget" | "PodMonitor":
                yield spec["selector"]["matchLabels"]
            case "NetworkPolicy":
                yield spec["podSelector"]["matchLabels"]


def labels_of_pods(render: Render) -> dict[str, str]:
    (found,) = (
        each["spec"]["template"]["metadata"]["labels"]
        for each in render.of_kind("Deployment")
        if proxy_container(render) in each["spec"]["template"]["spec"]["containers"]
    )
    assert isinstance(found, dict)
    return found


def written(render: Render) -> dict[str, str]:
    """Give the lines of the configuration that the chart writes."""
    lines = conf_of(render).splitlines()
    return {key: value for key, found, value in (line.partition("=") for line in lines) if found and key[0] != "#"}


@named
def test_the_cluster_takes_the_upgrade_and_the_rollback(name: str) -> None:
    old, new = objects(before(name)), objects(now(name))
    # What only one of both has would be made or deleted, a claim with all that is in it.
    assert old.keys() == new.keys()
    for key, document in old.items():
        assert kept_of(document) == kept_of(new[key]), key


@named
def test_services_and_policies_of_each_version_find_the_pods_of_the_other(name: str) -> None:
    renders = before(name), now(name)
    for these, others in (renders, renders[::-1]):
        ports = {port["name"] for port in proxy_container(others).get("ports", ())}
        for selector in selectors(these):
            assert selector.items() <= labels_of_pods(others).items()
        for service in these.of_kind("Service"):
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@named
def test_a_new_pod_serves_with_the_old_chart_s_configuration_in_the_old_memory(name: str) -> None:
    # So it is where the image is upgraded before the chart, and for a pod that starts again behind a rollback.
    render = before(name)
    config, container = config_of(render), proxy_container(render)
    gone = {warning.key for warning in config.warnings}
    assert gone <= {*RETIRED, "tlsEnabledWithBroker"}, "no key of the old chart is unknown"
    for key in Config.keys():  # noqa: SIM118
        if key.name in written(render):
            assert config.value(key) == key.parse(written(render)[key.name])
    limit = container["resources"]["limits"]["memory"].removesuffix("Mi")
    exports = "OTEL_EXPORTER_OTLP_ENDPOINT" in environ_of(render)
    assert worst_case_bytes(config, exports=exports) <= int(limit) * MIB
    assert container["args"] == proxy_container(now(name))["args"]


@named
def test_an_old_pod_that_starts_again_while_the_new_ones_come_knows_each_key(name: str) -> None:
    assert written(now(name)).keys() - written(before(name)).keys() <= WRITTEN_SINCE
