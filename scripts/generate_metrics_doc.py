"""Write docs/reference/metrics.md from the table of instruments."""

from collections.abc import Mapping
from pathlib import Path

from proxy.app.metrics.table import INSTRUMENTS
from proxy.core.instrument import Instrument
from proxy.telemetry.durations import BOUNDS_SECONDS
from proxy.telemetry.tenants import MOST_TENANTS
from scripts.generated import ROOT

PAGE = ROOT / "docs/reference/metrics.md"
SECTIONS = {
    "PIP-442": "Topic list limits (PIP-442)",
    "pulsar": "Metrics that the Java proxy has too",
    "convention": "The process, under the names that all Prometheus clients use",
    "ours": "Only in this proxy",
}
INTRODUCTION = """\
<!-- Written by scripts/generate_metrics_doc.py from the table of instruments; do not edit here. -->

# Metrics

`GET /metrics` on `webServicePort` answers in the Prometheus text format. Each sample has the label `cluster`,
the value of `clusterName`.

Wait times are milliseconds with a fraction (upstream's proxy cuts them to whole ones). Their quantiles are
those of the last eight to ten minutes, within 1 %; the quantile 1.0 is the longest wait, exactly. Without a
sample in that time a quantile is NaN. Waits that timed out count as well.

The last column is the same metric in OpenTelemetry: name, kind, unit
([monitoring.md](../monitoring.md#opentelemetry) says how to turn it on). Names of PIP-442 are the Java proxy's. Others
follow one rule: the first words of the Prometheus name are the namespace, and its unit is left out; a collector that
makes Prometheus' names of them gets those of /metrics. What is a summary of quantiles here is a histogram in seconds
there, with these upper bounds:
BOUNDS.
The label `cluster` is the resource attribute `pulsar.cluster` there.

Tenants have numbers of their own as long as there are at most MOST; then the rest is `(others)`, and once in a minute
a tenant of those takes the place of one that lately did less than half as much. It begins at 0 then.
""".replace("BOUNDS", ", ".join(f"{bound:g}" for bound in BOUNDS_SECONDS)).replace("MOST", str(MOST_TENANTS))


def row(instrument: Instrument) -> str:
    labels = ", ".join(f"`{label}`" for label in instrument.labels)
    samples = f"`{instrument.exposed_name}`"
    if instrument.kind == "summary":
        samples += ", `_count`, `_sum`"
    if instrument.created:
        samples += ", `_created`" if instrument.kind == "summary" else f", `{instrument.name}_created`"
    return f"| {samples} | {instrument.kind} | {instrument.unit} | {labels} | {instrument.help} | {otel(instrument)} |"


def otel(instrument: Instrument) -> str:
    return ", ".join(filter(None, (f"`{instrument.otel_name}`", instrument.otel_kind, instrument.otel_unit)))


def page() -> str:
    lines = [INTRODUCTION]
    for origin, title in SECTIONS.items():
        lines += [
            f"## {title}",
            "",
            "| name | kind | unit | labels | meaning | OpenTelemetry |",
            "|---|---|---|---|---|---|",
        ]
        lines += [row(instrument) for instrument in INSTRUMENTS if instrument.origin == origin]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def files() -> Mapping[Path, str]:
    return {PAGE: page()}
