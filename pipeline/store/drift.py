"""Drift as metrics: how far the replay is off, what is advised beside what is in force, whether the advice held.

Rule: the text is Prometheus' exposition format, for the node exporter's textfile collector or a Pushgateway; a file is
replaced whole. A value that is not known has no line. Pure, but for writing and sending.
"""

import os
import re
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.held import Held

PREFIX: Final = "pulsar_proxy_pipeline_"
_SECONDS: Final = 30.0
_HELP: Final[dict[str, str]] = {
    "calibration_error": "Error of the replay of the recorded limits, by the promised wait.",
    "calibration_imputed_ratio": "Share of requests whose sizes or times are those of others.",
    "calibration_late_p99_seconds": "99th percentile of the machine's lateness.",
    "advised_limit_bytes": "Limit that the latest advice says to set.",
    "limit_in_force_bytes": "Limit that most requests met in what was replayed last.",
    "advice_held": "Whether the latest advice that was in force held: 1 or 0.",
    "last_run_timestamp_seconds": "When the pipeline ran last.",
}
Row = Mapping[str, Any]


def exposition(
    calibration: Row | None,
    advice: Row | None,
    in_force: Row | None,
    outcome: Held | None,
    now_seconds: float,
    cluster: str | None = None,
) -> str:
    """Write the metrics, with the cluster as a label where it is given; what is None is left out."""
    found: dict[str, Mapping[str, float]] = {"last_run_timestamp_seconds": {"": now_seconds}}
    if calibration is not None:
        # No number is as bad as can be.
        error = calibration["error"]
        found["calibration_error"] = {"": float("inf") if error is None else error}
        found["calibration_imputed_ratio"] = {"": calibration["imputed_share"]}
        found["calibration_late_p99_seconds"] = {"": calibration["late_p99_us"] / 1e6}
    for name, row in (("advised_limit_bytes", advice), ("limit_in_force_bytes", in_force)):
        if row is not None:
            found[name] = {f'memory="{kind}"': row[f"{kind}_limit_bytes"] for kind in ("heap", "direct")}
    if outcome is not None and outcome.days:
        found["advice_held"] = {"": float(outcome.kept)}
    of_cluster = "" if cluster is None else f'cluster="{_escaped(cluster)}"'
    lines = []
    for name, text in _HELP.items():
        if name in found:
            lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} gauge"]
            for label, value in found[name].items():
                labels = ",".join(filter(None, (of_cluster, label)))
                lines.append(f"{PREFIX}{name}{f'{{{labels}}}' if labels else ''} {_shown(value)}")
    return "\n".join(lines) + "\n"


def write_metrics(path: Path, text: str) -> None:
    """Replace the file in one step; raises PipelineError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, "utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise PipelineError(f"--metrics-file: cannot write {path}: {error.strerror}", ExitCode.FAILED) from error


def refuse_gateway(url: str) -> None:
    """Raise PipelineError for what is no URL of a Pushgateway."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", url):
        raise PipelineError(f"--pushgateway: got {url!r}, expected a URL such as http://pushgateway:9091")


def push(url: str, text: str, cluster: str | None = None) -> None:
    """Put the metrics to a Pushgateway, in place of those of before of that cluster; raises PipelineError."""
    # A slash in the path would begin another label.
    group = "" if cluster is None else f"/cluster/{quote(cluster.replace('/', '_'), safe='')}"
    target = f"{url.rstrip('/')}/metrics/job/pulsar-proxy-pipeline{group}"
    try:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        request = urllib.request.Request(target, text.encode(), headers, method="PUT")
        with urllib.request.urlopen(request, timeout=_SECONDS):
            pass
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise PipelineError(f"--pushgateway: {url} did not take the metrics: {reason}", ExitCode.FAILED) from error


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _shown(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(float(value))
