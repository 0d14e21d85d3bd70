"""The charts of this repository for tests: loaded once, rendered with values, checked as Kubernetes would."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
from kubernetes_validate.utils import SchemaNotFoundError, schema_contents
from referencing import Registry, Resource

from proxy.config.config import Config
from scripts.helm.render import EXAMPLE, GATEWAY, Document, LoadedChart, Render, read_values

BROKERS: Final = {"brokerServiceURL": "pulsar://pulsar-broker:6650"}


@cache
def chart(path: Path) -> LoadedChart:
    return LoadedChart(path)


def gateway(values: Mapping[str, Any]) -> Render:
    """Render the gateway with such values, and brokers if they name none."""
    return _rendered(GATEWAY, json.dumps({**values, "configData": {**BROKERS, **values.get("configData", {})}}))


def example(values: Mapping[str, Any]) -> Render:
    """Render the example of an application with such values for its proxy."""
    return _rendered(EXAMPLE, json.dumps({"pulsarProxy": dict(values)}))


@cache
def _rendered(path: Path, values: str) -> Render:
    """Render once what several tests look at: each compiles the schemas of two charts anew."""
    return chart(path).render(json.loads(values))


def ci_files(*, of: Path) -> list[Path]:
    return sorted(of.glob("ci/*-values.yaml"))


@cache
def rendered(values: Path) -> Render:
    return chart(values.parents[1]).render(read_values(values))


def pods(render: Render) -> Iterator[Document]:
    """Yield the spec of each pod that Kubernetes' own kinds make."""
    for document in render.documents:
        match document["kind"]:
            case "Deployment":
                yield document["spec"]["template"]["spec"]
            case "CronJob":
                yield document["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def proxy_container(render: Render) -> Document:
    """Give the container of the proxy, wherever in its pod it is."""
    (found,) = (
        container
        for pod in pods(render)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        if container.get("command") == ["pulsar-proxy"]
    )
    return found  # type: ignore[no-any-return]


def conf_of(render: Render) -> str:
    (text,) = (each["data"]["proxy.conf"] for each in render.of_kind("ConfigMap") if "proxy.conf" in each["data"])
    assert isinstance(text, str)
    return text


def environ_of(render: Render) -> dict[str, str]:
    """Give the environment of the proxy; secrets have a value of their own."""
    return {each["name"]: each.get("value", "secret-of-16-bytes") for each in proxy_container(render).get("env", ())}


def config_of(render: Render) -> Config:
    """Read what was rendered as the proxy would: its file and its environment. Secrets have a value of their own."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "proxy.conf")
        path.write_text(conf_of(render))
        return Config.load(path, environ_of(render))


def wrong_for_kubernetes(document: Document, version: str) -> str:
    """Say what a version of Kubernetes would not take in a document; nothing if it is fine.

    Raises SchemaNotFoundError for kinds that are not Kubernetes' own.
    """
    group = document["apiVersion"].split("/")
    name = "-".join([group[0].split(".")[0], *group[1:]])
    error = jsonschema.exceptions.best_match(_validator(version, document["kind"].lower(), name).iter_errors(document))
    return "" if error is None else f"{error.json_path}: {error.message}"


@cache
def _validator(version: str, kind: str, api_version: str) -> Any:
    folder = f"kubernetes-json-schema/v{version}-local-strict"
    try:
        schema = schema_contents(f"{folder}/{kind}-{api_version}.json", version)
    except FileNotFoundError:
        raise SchemaNotFoundError(version=version, kind=kind, api_version=api_version) from None
    resource = Resource.from_contents(schema)
    return jsonschema.Draft202012Validator(schema, registry=resource @ _definitions(folder, version))


@cache
def _definitions(folder: str, version: str) -> Any:
    registry: Registry[Any] = Registry()
    return Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version)) @ registry
