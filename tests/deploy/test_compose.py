"""The Compose file without an engine: its schema, what it mounts, the proxy's keys, Prometheus' configuration."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from proxy.app.memory.budget import worst_case_bytes
from proxy.config.config import Config
from proxy.core.version import VERSION
from tests.pulsar.standalone import PULSAR_VERSION
from tests.support.programs import succeeded
from tests.support.tools import tool

HERE = Path(__file__).resolve().parents[2] / "deploy" / "compose"
FILE = HERE / "compose.yaml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UNITS = {"m": 2**20, "g": 2**30}


def mounts() -> dict[str, Path]:
    """Give what is mounted of this repository, by the place in the container."""
    words = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", ())]
    return {target[0]: (HERE / source).resolve() for source, *target in words if source.startswith(".")}


def configuration() -> Config:
    return Config.load(None, SERVICES["proxy"]["environment"])


def test_the_file_follows_the_schema_of_compose() -> None:
    asked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    succeeded(asked)


IMAGE = re.compile(r"(?P<name>[\w/.-]+):(?P<version>v?\d+\.\d+\.\d+)(?P<digest>@sha256:[0-9a-f]{64})?")


def test_every_image_is_pinned_by_digest_and_pulsar_is_the_one_that_tests_run_against() -> None:
    found = {service["image"]: IMAGE.fullmatch(service["image"]) for service in SERVICES.values()}
    versions = {image["name"]: image["version"] for image in found.values() if image is not None}
    assert len(versions) == len(SERVICES), found
    # The proxy's own image is built here.
    assert [image["name"] for image in found.values() if image is not None and not image["digest"]] == ["pulsar-proxy"]
    assert versions["apachepulsar/pulsar"] == PULSAR_VERSION
    assert versions["pulsar-proxy"] == SERVICES["proxy"]["build"]["args"]["VERSION"] == VERSION


def test_everything_is_reached_from_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_the_proxy_knows_each_of_its_keys() -> None:
    found = configuration()
    known = {key.name for key in Config.keys()}  # noqa: SIM118
    assert set(SERVICES["proxy"]["environment"]) <= known
    assert found.warnings == ()
    assert found.broker_service_url.startswith("pulsar://pulsar:")


def test_the_budgets_of_the_proxy_fit_into_its_memory() -> None:
    text = SERVICES["proxy"]["mem_limit"]
    assert worst_case_bytes(configuration()) <= int(text[:-1]) * UNITS[text[-1]]


def test_the_proxy_gets_the_time_that_its_shutdown_needs() -> None:
    found = configuration()
    needed = (found.shutdown_pre_drain_millis + found.shutdown_drain_millis) / 1000 + 5
    assert float(SERVICES["proxy"]["stop_grace_period"].removesuffix("s")) >= needed


def test_prometheus_scrapes_services_at_ports_that_they_listen_on() -> None:
    scrapes = yaml.safe_load((HERE / "prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in scrapes}
    assert targets["pulsar-proxy"] == [f"proxy:{configuration().web_service_port}"]
    assert {target.partition(":")[0] for found in targets.values() for target in found} <= set(SERVICES)


def test_promtool_accepts_the_configuration_with_the_rules(tmp_path: Path) -> None:
    # The rules are where they are mounted from, not where the container has them.
    text = (HERE / "prometheus.yml").read_text()
    for target, source in mounts().items():
        text = text.replace(f"{target}/", f"{source}/")
    copy = tmp_path / "prometheus.yml"
    copy.write_text(text)
    asked = [tool("promtool"), "check", "config", str(copy)]
    succeeded(asked)
    assert str(HERE.parents[1] / "helm") in text


def test_grafana_finds_its_data_source_and_its_dashboards() -> None:
    [source] = yaml.safe_load((HERE / "grafana/datasources/prometheus.yaml").read_text())["datasources"]
    service, _, port = source["url"].removeprefix("http://").partition(":")
    assert f"127.0.0.1:{port}:{port}" in SERVICES[service]["ports"]
    [provider] = yaml.safe_load((HERE / "grafana/providers/dashboards.yaml").read_text())["providers"]
    folder = mounts()[provider["options"]["path"]]
    dashboards = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    assert dashboards
    for dashboard in dashboards:
        kinds = {variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "datasource"}
        assert kinds == {source["type"]}
        # Nothing here has a namespace or a pod; `.+` would show nothing.
        chosen = [variable for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
        assert {variable["allValue"] for variable in chosen} == {".*"}
