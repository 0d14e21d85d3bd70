"""Generate the Grafana dashboard that the chart ships, from the table of panels.

Rule: the dashboard fixes no data source and no label value; the user selects them after the import.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.dashboard_table import COLUMNS, ROWS, VARIABLES, Panel, Query
from scripts.generated import ROOT

FILE = ROOT / "helm/pulsar-proxy-gateway/dashboards/pulsar-proxy.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN_BY = "pulsar_proxy_build_info"
HEIGHTS = {"stat": 4, "timeseries": 8}

Json = dict[str, Any]


def target(number: int, query: Query, kind: str) -> Json:
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "instant": kind == "stat",
        "range": kind != "stat",
    }


def field_config(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit}
    if panel.least is not None:
        defaults["min"] = panel.least
    if panel.most is not None:
        defaults["max"] = panel.most
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return {"defaults": defaults, "overrides": []}


def options(panel: Panel) -> Json:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "graphMode": "none", "colorMode": "none"}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def drawn(panel: Panel, number: int, x: int, y: int) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHTS[panel.kind]},
        "fieldConfig": field_config(panel),
        "options": options(panel),
        "targets": [target(place, query, panel.kind) for place, query in enumerate(panel.queries)],
    }


def panels() -> Iterator[Json]:
    """Yield the rows with their panels, from left to right and from top to bottom."""
    number = y = 0
    for row in ROWS:
        number += 1
        head = {"id": number, "type": "row", "title": row.question, "collapsed": False, "panels": list[Json]()}
        yield head | {"gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + height
            number += 1
            yield drawn(panel, number, x, y)
            x, height = x + panel.width, HEIGHTS[panel.kind]
        y += height


def variable(place: int, name: str) -> Json:
    """Return a variable for the values of a label, among the proxies that earlier variables select."""
    before = ",".join(f'{other}=~"${other}"' for other in VARIABLES[:place])
    query = f"label_values({CHOSEN_BY}{{{before}}}, {name})" if before else f"label_values({CHOSEN_BY}, {name})"
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        # Matches the empty text as well: a proxy on a VM has no pod and no namespace.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> Json:
    source = {"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    alerts = {
        "name": "alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": 'ALERTS{alertname=~"PulsarProxy.*",alertstate="firing",instance=~"$instance"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{instance}}",
    }
    return {
        "uid": "pulsar-proxy-sidecar",
        "title": "Pulsar / Proxy (memory-bounded)",
        "description": "Is there a storm, who causes it, is memory the reason, does the relay flow, what goes wrong.",
        "tags": ["pulsar"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, *(variable(place, name) for place, name in enumerate(VARIABLES))]},
        "annotations": {"list": [alerts]},
        "panels": list(panels()),
    }


def page() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def files() -> Mapping[Path, str]:
    return {FILE: page()}
