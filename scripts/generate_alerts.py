"""Generate the chart's rule file, the table in docs/monitoring.md and the runbooks' heads from the table of alerts.

The prose of a runbook is written by hand, but nothing between the marks of the generated part.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

import yaml

from scripts.alert_table import ALERTS, RECORDS, Alert, Record, names
from scripts.generated import ROOT, placed

RULES = ROOT / "helm/pulsar-proxy-gateway/rules/pulsar-proxy.yaml"
MONITORING = ROOT / "docs/monitoring.md"
BEGIN = "<!-- alerts: written by scripts/generate_alerts.py from scripts/alert_table.py, do not edit -->"
END = "<!-- alerts: end -->"
RECORDS_BEGIN = "<!-- records: written by scripts/generate_alerts.py from scripts/alert_table.py, do not edit -->"
RECORDS_END = "<!-- records: end -->"
HEAD = "# Written by scripts/generate_alerts.py from scripts/alert_table.py; do not edit here.\n"


def rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.holds,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.first, "runbook_url": alert.runbook},
    }


def recorded(record: Record) -> dict[str, object]:
    return {"record": record.name, "expr": record.expression}


def rules() -> str:
    groups: list[dict[str, object]] = []
    for group, members in groupby(ALERTS, key=lambda alert: alert.group):
        # The rules of a group are evaluated in their order: alerts see what was recorded a moment ago.
        records = [recorded(record) for record in RECORDS] if group == "objectives" else []
        groups.append({"name": f"pulsar-proxy-{group}", "rules": [*records, *map(rule, members)]})
    # Texts must not be folded: Helm reads and writes the file, and a folded text would differ afterwards.
    return HEAD + yaml.safe_dump({"groups": groups}, sort_keys=False, width=10_000)


def table() -> Iterator[str]:
    yield from ("| alert | severity | holds for | first |", "|---|---|---|---|")
    for alert in ALERTS:
        link = f"[{alert.name}]({alert.runbook.removeprefix('docs/')})"
        yield f"| {link} | {alert.severity} | {alert.holds} | {alert.first} |"


def records() -> Iterator[str]:
    yield from ("| recording rule | what it is |", "|---|---|")
    for record in RECORDS:
        yield f"| `{record.name}` | {record.text} |"


def head(name: str) -> Iterator[str]:
    """Yield the generated lines of a runbook: a row for each severity."""
    yield from ("| severity | holds for | expression |", "|---|---|---|")
    for alert in ALERTS:
        if alert.name == name:
            expression = alert.expression.replace("|", "\\|")
            yield f"| {alert.severity} | {alert.holds} | `{expression}` |"


def files() -> Mapping[Path, str]:
    pages = {ROOT / "docs/runbooks" / f"{name}.md": {(BEGIN, END): head(name)} for name in names()}
    pages[MONITORING] = {(BEGIN, END): table(), (RECORDS_BEGIN, RECORDS_END): records()}
    return {RULES: rules()} | {
        page: placed(page, {marks: "\n".join(("", *lines, "")) for marks, lines in parts.items()})
        for page, parts in pages.items()
    }
