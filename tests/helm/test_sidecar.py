"""The library chart, through the application that shows how it is used."""

from typing import Any

from tests.helm.charts import config_of, example, proxy_container


def pod(**values: Any) -> dict[str, Any]:
    found: dict[str, Any] = example(values).one("Deployment")["spec"]["template"]["spec"]
    return found


def test_the_native_form_is_an_init_container_that_restarts() -> None:
    spec = pod(mode="native")
    (proxy,) = spec["initContainers"]
    assert proxy["restartPolicy"] == "Always"
    assert [container["name"] for container in spec["containers"]] == ["orders"]
    assert "startupProbe" in proxy, "it holds the application back until the proxy serves"


def test_the_plain_form_is_a_container_beside_the_application() -> None:
    spec = pod(mode="plain")
    assert "initContainers" not in spec
    application, proxy = spec["containers"]
    assert (application["name"], proxy["name"]) == ("orders", "pulsar-proxy")
    assert "restartPolicy" not in proxy
    assert "startupProbe" not in proxy, "it would hold nobody back"


def test_a_native_sidecar_ends_after_the_application_a_plain_one_beside_it() -> None:
    drain = {"configData": {"shutdownDrainMillis": 30_000}}
    assert pod(mode="native", **drain)["terminationGracePeriodSeconds"] == 20 + 30 + 5
    assert pod(mode="plain", **drain)["terminationGracePeriodSeconds"] == 30 + 5


def test_probes_and_prometheus_ask_a_port_of_its_own_while_all_else_is_on_loopback() -> None:
    render = example({})
    config = config_of(render)
    assert (config.bind_address, config.web_addresses) == (("127.0.0.1",), ("127.0.0.1",))
    assert (config.metrics_port, config.metrics_addresses) == (15650, ("0.0.0.0",))
    proxy = proxy_container(render)
    assert proxy["ports"] == [{"name": "pulsar-metrics", "containerPort": 15650}]
    paths = {probe: proxy[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {
        "startupProbe": {"path": "/readyz", "port": 15650},
        "livenessProbe": {"path": "/healthz", "port": 15650},
        "readinessProbe": {"path": "/readyz", "port": 15650},
    }
    annotations = render.one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "15650"


def test_without_that_port_a_command_asks_how_it_is_and_nobody_can_scrape() -> None:
    render = example({"metricsPort": 0})
    assert config_of(render).metrics_port is None
    proxy = proxy_container(render)
    assert "ports" not in proxy
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert proxy[probe]["exec"]["command"][:2] == ["pulsar-proxy", "health"]
    annotations = render.one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert "prometheus.io/port" not in annotations


def test_exposed_it_is_asked_over_http() -> None:
    render = example({"exposed": True, "metricsPort": 0})
    assert config_of(render).bind_address == ("0.0.0.0",)
    proxy = proxy_container(render)
    assert proxy["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8080}
    assert proxy["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8080}
    annotations = render.one("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == "8080"


def test_the_application_speaks_to_the_port_of_the_proxy() -> None:
    render = example({"port": 16650})
    assert config_of(render).service_port == 16650
    (url,) = render.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert url["value"] == "pulsar://127.0.0.1:16650"
