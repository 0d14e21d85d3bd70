"""Every values file in ci/: what comes out, held against Kubernetes, the proxy's code and the last render."""

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from proxy.app.lifecycle import DeploymentRole, ShutdownPlan
from proxy.app.memory.budget import worst_case_bytes
from proxy.app.metrics.otel_settings import otel_settings
from proxy.config.config import Config
from proxy.telemetry.events.log import LARGEST_FILE_BYTES
from scripts.helm.render import EXAMPLE, GATEWAY, Render
from tests.helm.charts import (
    BROKERS,
    ci_files,
    conf_of,
    config_of,
    environ_of,
    example,
    gateway,
    pods,
    proxy_container,
    rendered,
    wrong_for_kubernetes,
)
from tests.helm.operators import NAMES, unlisted

GATEWAY_FILES = ci_files(of=GATEWAY)
EXAMPLE_FILES = ci_files(of=EXAMPLE)
# The oldest that the charts take, one between, the newest whose schemas there are.
VERSIONS = ("1.25.0", "1.31.0", "1.37.0")
# Containers of the pipeline.
JOBS = {"ingest", "report", "compact"}
# Containers that values files bring along.
OF_THE_OPERATOR = {"wait", "logs"}
MIB = 1024 * 1024


def name(path: Path) -> str:
    return f"{path.parents[1].name}/{path.name.removesuffix('-values.yaml')}"


gateway_files = pytest.mark.parametrize("path", GATEWAY_FILES, ids=name)
all_files = pytest.mark.parametrize("path", [*GATEWAY_FILES, *EXAMPLE_FILES], ids=name)


@pytest.mark.parametrize("version", VERSIONS)
@all_files
def test_kubernetes_takes_what_is_rendered(path: Path, version: str) -> None:
    too_old = path.name == "native-values.yaml" and version == VERSIONS[0]
    for document in rendered(path).documents:
        if f"{document['apiVersion']}/{document['kind']}" in NAMES:
            continue
        # Older than init containers that restart: the chart itself refuses to render for it (test_refusals).
        expected = "restartPolicy" if too_old and document["kind"] == "Deployment" else ""
        wrong = wrong_for_kubernetes(document, version)
        assert expected in wrong if expected else wrong == ""


@all_files
def test_operators_take_what_is_rendered(path: Path) -> None:
    for document in rendered(path).documents:
        if f"{document['apiVersion']}/{document['kind']}" in NAMES:
            assert unlisted(document) == set()


def test_every_kind_of_an_operator_is_in_some_values_file() -> None:
    found = {f"{each['apiVersion']}/{each['kind']}" for path in GATEWAY_FILES for each in rendered(path).documents}
    assert found >= NAMES.keys()


@all_files
def test_the_proxy_reads_what_is_rendered_without_a_warning(path: Path) -> None:
    config = config_of(rendered(path))
    warnings = [str(warning) for warning in config.warnings]
    if path.name == "drop-in-values.yaml":
        (warning,) = warnings
        assert "httpNumThreads" in warning, "threads of the Java proxy: told, not lost"
    elif path.name == "token-values.yaml":
        (warning,) = warnings
        assert "tlsEnabledWithBroker: false" in warning, "tokens go to brokers in plain text"
    else:
        assert warnings == []


@all_files
def test_memory_is_what_the_proxy_itself_adds_up(path: Path) -> None:
    render = rendered(path)
    extra_mib = {"all": 256}.get(path.name.removesuffix("-values.yaml"), 24 if path.is_relative_to(EXAMPLE) else 64)
    exports = otel_settings(environ_of(render))[0] is not None
    expected_mib = -(-(worst_case_bytes(config_of(render), exports=exports) + extra_mib * MIB) // MIB)
    resources = proxy_container(render)["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == f"{expected_mib}Mi"


@all_files
def test_the_grace_period_is_what_the_proxy_takes_and_five_seconds(path: Path) -> None:
    render = rendered(path)
    config = config_of(render)
    longest = plan_of(config).longest_seconds
    (given,) = (pod["terminationGracePeriodSeconds"] for pod in pods(render) if has_proxy(pod))
    application = 20 if path.is_relative_to(EXAMPLE) else 0
    native = path.name == "native-values.yaml"
    own = -(-longest // 1) + 5
    assert given == (application + own if native else max(application, own))
    assert given > longest >= config.shutdown_drain_millis / 1000, "or the kubelet kills it while it drains"


def plan_of(config: Config) -> ShutdownPlan:
    before, drain = config.shutdown_pre_drain_millis / 1000, config.shutdown_drain_millis / 1000
    return ShutdownPlan(DeploymentRole(config.proxy_role), before, drain)


def has_proxy(pod: dict[str, Any]) -> bool:
    containers = (*pod.get("initContainers", ()), *pod["containers"])
    return any(container.get("command") == ["pulsar-proxy"] for container in containers)


@all_files
def test_no_container_of_the_charts_has_rights_a_writable_root_or_a_token(path: Path) -> None:
    for pod in pods(rendered(path)):
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            if container["name"] in OF_THE_OPERATOR:
                continue
            security = {**pod.get("securityContext", {}), **container["securityContext"]}
            if container.get("command") == ["pulsar-proxy"]:
                assert security["runAsUser"] == security["runAsGroup"] == 10001
            assert security["runAsNonRoot"] is True, container["name"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}
            resources = container["resources"]
            assert resources["requests"]["memory"] == resources["limits"]["memory"], "nobody else's memory is taken"


def test_events_have_the_room_that_they_may_take() -> None:
    render = gateway({"configData": {"eventLogDirectory": "/events", "eventLogFilesMaxTotalMB": 512}})
    (pod,) = filter(has_proxy, pods(render))
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "events"]
    # A pod that has more is evicted.
    assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi")) > 512 + LARGEST_FILE_BYTES // MIB


@pytest.mark.parametrize("render", [gateway, example])
def test_slow_readers_lists_have_a_disk_larger_than_the_key_and_a_directory_that_the_proxy_makes(
    render: Callable[[dict[str, Any]], Render],
) -> None:
    found = render({"spill": {"enabled": True}, "configData": {**BROKERS, "topicListSpillMaxMB": 1024}})
    container = proxy_container(found)
    (pod,) = filter(has_proxy, pods(found))
    (volume,) = [volume for volume in pod["volumes"] if volume["name"].endswith("lists")]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
    assert volume["emptyDir"] == {"sizeLimit": f"{1024 + 128 + 64}Mi"}
    assert not mount.get("readOnly")
    assert f"topicListSpillDirectory={mount['mountPath']}/spill" in conf_of(found).splitlines()


@all_files
def test_every_path_of_the_configuration_is_mounted(path: Path) -> None:
    render = rendered(path)
    container = proxy_container(render)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert container["args"] == ["serve", "--config", "/pulsar/conf/proxy.conf"]
    assert mounts["/pulsar/conf"]["readOnly"] is True
    (pod,) = filter(has_proxy, pods(render))
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in mounts.values()} <= volumes.keys()
    for line in conf_of(render).splitlines():
        key, _, value = line.partition("=")
        file = value.removeprefix("file://")
        if file.startswith("/pulsar/"):
            (mount,) = [mount for mount in mounts if file == mount or file.startswith(f"{mount}/")]
            volume = volumes[mounts[mount]["name"]]
            in_it = {item["path"] for item in volume.get("secret", {}).get("items", ())}
            assert not in_it or file.removeprefix(f"{mount}/") in in_it, key


@gateway_files
def test_services_selectors_and_monitors_find_the_pods(path: Path) -> None:
    render = rendered(path)
    gateways = [each for each in render.of_kind("Deployment") if has_proxy(each["spec"]["template"]["spec"])]
    (deployment,) = gateways
    template = deployment["spec"]["template"]
    ports = {port["name"] for port in proxy_container(render)["ports"]}
    service = render.one("Service")
    selectors = [service["spec"]["selector"]]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        selectors += [each["spec"]["selector"]["matchLabels"] for each in render.of_kind(kind)]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in render.of_kind("NetworkPolicy")]
    for scaler in render.of_kind("HorizontalPodAutoscaler"):
        assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    for selector in selectors:
        assert selector.items() <= template["metadata"]["labels"].items()
    for monitor in render.of_kind("ServiceMonitor"):
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert all(len(port) <= 15 for port in ports), "Kubernetes takes no longer names of ports"


def test_every_job_of_the_pipeline_is_told_what_it_knows_and_shares_the_tables() -> None:
    told = {}
    for pod in pods(rendered(GATEWAY / "ci/pipeline-values.yaml")):
        for job, *words in (each["args"] for each in pod["containers"] if each["name"] in JOBS):
            parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
            import_module(f"pipeline.jobs.{job}").add_arguments(parser)
            told[job] = parser.parse_args(words)
    assert told.keys() == {"ingest", "run", "compact"}
    assert {each.out for each in told.values()} == {"/data/tables"}
    assert told["run"].target_load == 1


def test_stream_of_the_pipeline_is_asked_for_its_health_at_the_port_that_it_is_told() -> None:
    (ingest,) = [
        each for pod in pods(rendered(GATEWAY / "ci/pipeline-values.yaml")) for each in pod["containers"]
        if each["name"] == "ingest"
    ]  # fmt: skip
    (port,) = ingest["ports"]
    assert f"--metrics-port={port['containerPort']}" in ingest["args"]
    assert ingest["livenessProbe"]["httpGet"] == {"path": "/metrics", "port": port["name"]}
    assert ingest["startupProbe"]["tcpSocket"] == {"port": port["name"]}
