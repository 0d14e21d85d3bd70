"""The gateway's listeners: what the Service shows, and what probes and monitors ask."""

from typing import Any

import pytest
from helm_python import HelmError

from scripts.helm.render import Render
from tests.helm.charts import config_of, gateway, proxy_container

METRICS = {"metricsPort": 15650}


def shown(render: Render) -> list[str]:
    return [port["name"] for port in render.one("Service")["spec"]["ports"]]


def asked(render: Render) -> set[str]:
    container = proxy_container(render)
    return {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}


def test_the_web_ports_leave_the_service_and_stay_for_probes() -> None:
    assert shown(gateway({})) == ["http", "pulsar"]
    render = gateway({"service": {"web": False}})
    assert shown(render) == ["pulsar"]
    assert asked(render) == {"http"}
    assert config_of(render).web_service_port == 8080
    tls = {"tls": {"enabled": True, "secretName": "proxy-tls"}}
    assert shown(gateway(tls)) == ["https", "pulsarssl"]
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


def test_who_may_scrape_may_do_so_at_the_port_for_monitors() -> None:
    policy = {"enabled": True, "monitoring": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}
    rules = gateway({"configData": METRICS, "networkPolicy": policy}).one("NetworkPolicy")["spec"]["ingress"]
    assert [[port["port"] for port in rule["ports"]] for rule in rules] == [[6650], [8080, 15650], ["metrics"]]


@pytest.mark.parametrize(("values", "message"), [
    ({"configData": {"bindAddress": "127.0.0.1"}}, "configData.bindAddress: got 127.0.0.1, expected an address that"),
    ({"configData": {"webServicePort": ""}}, "configData.webServicePort: got nothing, expected a port, or configData."),
    ({"service": {"web": False}, "serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled: got true with service"),
])  # fmt: skip
def test_a_gateway_that_cannot_be_reached_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmError) as refused:
        gateway(values)
    assert message in str(refused.value)
