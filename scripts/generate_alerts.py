"""Generate the chart's rule file, the table in docs/monitoring.md and the runbooks' heads from the table of alerts.

The prose of a runbook is written by hand, but nothing between the marks of the generated part.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

import yaml

from scripts.alert_table import ALERTS, Alert, names
from scripts.generated import ROOT, placed

RULES = ROOT / "helm/pulsar-proxy-sidecar/rules/pulsar-proxy.yaml"
MONITORING = ROOT / "docs/monitoring.md"
BEGIN = "<!-- alerts: written by scripts/generate_alerts.py from scripts/alert_table.py, do not edit -->"
END = "<!-- alerts: end -->"
HEAD = "# Written by scripts/generate_alerts.py from scripts/alert_table.py; do not edit here.\n"


def rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.holds,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.first, "runbook_url": alert.runbook},
    }


def rules() -> str:
    groups = [
        {"name": f"pulsar-proxy-{group}", "rules": [rule(alert) for alert in members]}
        for group, members in groupby(ALERTS, key=lambda alert: alert.group)
    ]
    # Texts must not be folded: Helm reads and writes the file, and a folded text would differ afterwards.
    return HEAD + yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000)


def table() -> Iterator[str]:
    yield from ("| alert | severity | holds for | first |", "|---|---|---|---|")
    for alert in ALERTS:
        link = f"[{alert.name}]({alert.runbook.removeprefix('docs/')})"
        yield f"| {link} | {alert.severity} | {alert.holds} | {alert.first} |"


def head(name: str) -> Iterator[str]:
    """Yield the generated lines of a runbook: a row for each severity."""
    yield from ("| severity | holds for | expression |", "|---|---|---|")
    for alert in ALERTS:
        if alert.name == name:
            expression = alert.expression.replace("|", "\\|")
            yield f"| {alert.severity} | {alert.holds} | `{expression}` |"


def files() -> Mapping[Path, str]:
    pages = {ROOT / "docs/runbooks" / f"{name}.md": head(name) for name in names()}
    pages[MONITORING] = table()
    return {RULES: rules()} | {
        page: placed(page, {(BEGIN, END): "\n".join(("", *lines, ""))}) for page, lines in pages.items()
    }
