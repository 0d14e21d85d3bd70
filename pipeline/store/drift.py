"""Drift as metrics: how far the replay is off, what is advised beside what is in force, whether the advice held.

Rule: a value that is not known has no sample. The label `cluster` is empty where all clusters are looked at.
"""

import re
import time
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Gauge, push_to_gateway, write_to_textfile

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.held import Held

PREFIX: Final = "pulsar_proxy_pipeline_"
Row = Mapping[str, Any]


def drift_metrics(
    calibration: Row | None, advice: Row | None, in_force: Row | None, outcome: Held | None, cluster: str | None
) -> CollectorRegistry:
    """Return the metrics of a run that ends now; what is None is left out."""
    registry, of = CollectorRegistry(), cluster or ""

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}{name}", text, ("cluster", *labels), registry=registry)

    def tell(name: str, text: str, value: float) -> None:
        gauge(name, text).labels(of).set(value)

    tell("last_run_timestamp_seconds", "When the pipeline ran last.", time.time())
    if calibration is not None:
        # No number is as bad as can be.
        error = float("inf") if calibration["error"] is None else calibration["error"]
        tell("calibration_error", "Error of the replay of the recorded limits, by the promised wait.", error)
        text = "Share of requests whose sizes or times are those of others."
        tell("calibration_imputed_ratio", text, calibration["imputed_share"])
        tell("calibration_late_p99_seconds", "99th percentile of lateness.", calibration["late_p99_us"] / 1e6)
    limits = (
        ("advised_limit_bytes", "Limit that the latest advice says to set.", advice),
        ("limit_in_force_bytes", "Limit that most requests met in what was replayed last.", in_force),
    )
    for name, text, row in limits:
        if row is not None:
            found = gauge(name, text, "memory")
            for kind in ("heap", "direct"):
                found.labels(of, kind).set(row[f"{kind}_limit_bytes"])
    if outcome is not None and outcome.days:
        tell("advice_held", "Whether the latest advice that was in force held: 1 or 0.", outcome.kept)
    return registry


def write_metrics(path: str, metrics: CollectorRegistry) -> None:
    """Replace the file in one step; raises PipelineError."""
    try:
        write_to_textfile(path, metrics)
    except OSError as error:
        raise PipelineError(f"--metrics-file: cannot write {path}: {error.strerror}", ExitCode.FAILED) from error


def refuse_gateway(url: str) -> None:
    """Raise PipelineError for what is no URL of a Pushgateway."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
        raise PipelineError(f"--pushgateway: got {url!r}, expected a URL such as http://pushgateway:9091")


def push(url: str, metrics: CollectorRegistry, cluster: str | None) -> None:
    """Put the metrics to a Pushgateway, in place of those of before of that cluster; raises PipelineError."""
    try:
        push_to_gateway(url, "pulsar-proxy-pipeline", metrics, {"cluster": cluster} if cluster else {})
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise PipelineError(f"--pushgateway: {url} did not take the metrics: {reason}", ExitCode.FAILED) from error
