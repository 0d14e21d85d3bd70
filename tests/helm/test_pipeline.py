"""The jobs of the pipeline in the chart: who shares tables, and who owns a checkpoint."""

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from scripts.helm.render import GATEWAY
from tests.helm.charts import pods, rendered

JOBS = {"compact", "ingest", "run", "usage"}


def words_of(name: str) -> Iterator[list[str]]:
    """Give the words of each job of a render."""
    render = rendered(GATEWAY / f"ci/{name}-values.yaml")
    for pod in pods(render):
        yield from (each["args"] for each in pod["containers"] if (each.get("args") or [""])[0] in JOBS)
    for kind in ("SparkApplication", "ScheduledSparkApplication"):
        for document in render.of_kind(kind):
            yield document["spec"].get("template", document["spec"])["arguments"]


def options_of(name: str) -> dict[str, argparse.Namespace]:
    """Give what each job is told; a word that it does not know ends the test."""
    found = {}
    for job, *given in words_of(name):
        parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        import_module(f"pipeline.jobs.{job}").add_arguments(parser)
        found[job] = parser.parse_args(given)
    return found


@pytest.mark.parametrize("name", ["pipeline-delta", "pipeline-spark-operator"])
def test_all_jobs_share_tables_in_delta_and_each_stream_has_a_checkpoint(name: str) -> None:
    told = options_of(name)
    assert told.keys() == JOBS
    assert len({each.out for each in told.values()}) == 1
    assert {each.format for each in told.values()} == {"delta"}
    assert told["usage"].stream
    assert told["usage"].trigger == "1m"
    assert len({told["usage"].checkpoint, told["ingest"].checkpoint, None}) == 3


def test_tables_of_parquet_have_no_stream_and_another_directory() -> None:
    told = options_of("pipeline")
    assert told.keys() == JOBS - {"usage"}
    assert {each.out for each in told.values()} == {"/data/tables"}
    assert told["ingest"].format is None


def test_stream_of_usage_has_one_pod_on_the_node_of_ingest() -> None:
    (usage,) = deployment("usage")
    assert (usage["spec"]["replicas"], usage["spec"]["strategy"]["type"]) == (1, "Recreate")
    pod = usage["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (ingest,) = deployment("ingest")
    assert term["labelSelector"]["matchLabels"].items() <= ingest["spec"]["template"]["metadata"]["labels"].items()


def deployment(component: str) -> list[dict[str, Any]]:
    found = rendered(GATEWAY / "ci/pipeline-delta-values.yaml").of_kind("Deployment")
    return [each for each in found if each["metadata"]["name"].endswith(f"-{component}")]
