"""The NetworkPolicy as a cluster reads it: who gets in, and where the proxy gets out."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from scripts.helm.render import Document, Render
from tests.helm.charts import gateway, proxy_container

PULSAR, WEB, BROKER, BROKER_WEB, DNS, OTLP = 6650, 8080, 16650, 18080, 53, 4318


class Peer(NamedTuple):
    """A pod, by the labels of its namespace and its own."""

    namespace: Mapping[str, str]
    pod: Mapping[str, str]


def peer(namespace: str, **labels: str) -> Peer:
    return Peer({"kubernetes.io/metadata.name": namespace}, {name.replace("_", "-"): labels[name] for name in labels})


HOME: Final = "pulsar"
STRANGER: Final = peer("elsewhere", app="x")
KUBE_DNS: Final = peer("kube-system", k8s_app="kube-dns")
BROKERS: Final = peer(HOME, component="broker")


def policy(**values: Any) -> Render:
    urls = {"brokerServiceURL": f"pulsar://b:{BROKER}", "brokerWebServiceURL": f"http://b:{BROKER_WEB}"}
    keys = {**urls, "brokerProxyAllowedTargetPorts": str(BROKER)}
    return gateway({"networkPolicy": {"enabled": True, **values}, "configData": keys})


def only(**labels: str) -> list[Document]:
    """Give a peer of a policy: pods with such labels in the proxy's own namespace."""
    return [{"podSelector": {"matchLabels": labels}}]


def comes_in(render: Render, who: Peer, port: int) -> bool:
    return _allowed(render, "Ingress", who, port, "TCP")


def gets_out(render: Render, who: Peer, port: int, protocol: str = "TCP") -> bool:
    return _allowed(render, "Egress", who, port, protocol)


def _allowed(render: Render, way: str, who: Peer, port: int, protocol: str) -> bool:
    spec = render.one("NetworkPolicy")["spec"]
    if way not in spec["policyTypes"]:
        return True
    named = {each["name"]: each["containerPort"] for each in proxy_container(render)["ports"]}
    return any(
        _is_one_of(rule.get("from" if way == "Ingress" else "to"), who)
        and _has_port(rule.get("ports"), port, protocol, named)
        for rule in spec[way.lower()]
    )


def _is_one_of(peers: list[Document] | None, who: Peer) -> bool:
    return not peers or any(
        _matches(each.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": HOME}}), who.namespace)
        and _matches(each.get("podSelector", {}), who.pod)
        for each in peers
    )


def _matches(selector: Document, labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "matchExpressions are not read here"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _has_port(ports: list[Document] | None, port: int, protocol: str, named: Mapping[str, int]) -> bool:
    return not ports or any(
        named.get(each["port"], each["port"]) == port and each.get("protocol", "TCP") == protocol for each in ports
    )


def test_names_of_brokers_are_found_by_either_protocol_of_dns_wherever_it_is() -> None:
    for protocol in ("UDP", "TCP"):
        assert gets_out(policy(), KUBE_DNS, DNS, protocol)
        assert not gets_out(policy(), STRANGER, DNS, protocol)
    render = policy(dns=[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "dns"}}}])
    assert gets_out(render, peer("dns"), DNS, "UDP")
    assert not gets_out(render, KUBE_DNS, DNS, "UDP")


def test_brokers_are_reached_at_their_ports_wherever_they_are() -> None:
    render = policy()
    assert [gets_out(render, STRANGER, port) for port in (BROKER, BROKER_WEB, 22, OTLP)] == [True, True, False, False]


def test_brokers_that_are_named_are_the_only_ones() -> None:
    render = policy(brokers=only(component="broker"))
    assert gets_out(render, BROKERS, BROKER)
    assert not gets_out(render, BROKERS, 22)
    assert not gets_out(render, STRANGER, BROKER)
    assert not gets_out(render, peer("elsewhere", component="broker"), BROKER)


def test_a_collector_is_reached_if_that_is_said() -> None:
    render = policy(otlp={"enabled": True, "to": only(app="collector")})
    assert gets_out(render, peer(HOME, app="collector"), OTLP)
    assert not gets_out(render, STRANGER, OTLP)
    assert not gets_out(policy(), peer(HOME, app="collector"), OTLP)


def test_everybody_comes_in_unless_clients_are_named_and_to_no_other_port() -> None:
    render = policy()
    assert [comes_in(render, STRANGER, port) for port in (PULSAR, WEB, 22)] == [True, True, False]
    render = policy(clients=only(app="orders"))
    assert comes_in(render, peer(HOME, app="orders"), PULSAR)
    assert not comes_in(render, STRANGER, PULSAR)
    assert comes_in(render, STRANGER, WEB)


def test_a_scraper_comes_in_where_the_web_ports_are_for_others() -> None:
    render = policy(web=only(app="admin"), monitoring=only(app="prometheus"))
    who = [peer(HOME, app="admin"), peer(HOME, app="prometheus"), STRANGER]
    assert [comes_in(render, each, WEB) for each in who] == [True, True, False]
