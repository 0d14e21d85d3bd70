"""The examples under deploy/pipeline: valid for Kubernetes, and each argument one that its job knows."""

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pipeline.cli import JOBS
from pipeline.core.paths import conf_path
from pipeline.report.write import report_path

HERE = Path(__file__).resolve().parents[2] / "deploy" / "pipeline"
PLAIN = sorted(HERE.glob("kubernetes/*.yaml"))
VERSIONS = ("1.30.0", "1.34.0", "1.37.0")


def documents(path: Path) -> Iterator[dict[str, Any]]:
    for document in yaml.safe_load_all(path.read_text()):
        assert isinstance(document, dict)
        yield document


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def under(node: Any, *names: str) -> Iterator[Any]:
    """Find what stands under a key of these names anywhere in a document."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in names:
                yield value
            else:
                yield from under(value, *names)
    elif isinstance(node, list):
        for value in node:
            yield from under(value, *names)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", PLAIN, ids=name)
def test_plain_manifests_follow_the_schemas_of_kubernetes(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("path", PLAIN, ids=name)
def test_every_argument_is_one_that_its_job_knows_and_makes_sense_before_spark_starts(path: Path) -> None:
    for document in documents(path):
        for job, *given in under(document, "args"):
            assert job in JOBS
            parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
            import_module(f"pipeline.jobs.{job.replace('-', '_')}").add_arguments(parser)
            options, unknown = parser.parse_known_args(given)
            assert unknown == []
            if job == "run":
                assert report_path(options.out, options.to)
                assert conf_path(options.out, options.conf_file), "the fragment of proxy.conf would be nowhere"


@pytest.mark.parametrize("path", PLAIN, ids=name)
def test_no_container_may_gain_privileges(path: Path) -> None:
    for found in under([*documents(path)], "containers", "driver", "executor"):
        for container in found if isinstance(found, list) else [found]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_ingest_never_runs_twice_at_once() -> None:
    (ingest,) = documents(HERE / "kubernetes" / "ingest.yaml")
    assert ingest["spec"]["replicas"] == 1
    assert ingest["spec"]["strategy"]["type"] == "Recreate"


@pytest.mark.parametrize("job", ["compact", "report"])
def test_pods_that_share_a_volume_of_one_node_run_on_one_node(job: str) -> None:
    (claim,), (ingest,), (nightly,) = (
        documents(HERE / "kubernetes" / f"{each}.yaml") for each in ("storage", "ingest", job)
    )
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    pod = nightly["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    labels = ingest["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items()
