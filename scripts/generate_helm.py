"""Write what the Helm charts have of the table of keys, of the budget and of their own values.yaml."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from proxy.core.version import VERSION
from scripts.helm import keys, readme, schema
from scripts.helm.render import GATEWAY, LIBRARY


def table_template() -> str:
    return f"""\
{{{{- /* Written by scripts/generate_helm.py from the table of keys and the budget of memory; do not edit here. */ -}}}}
{{{{- define "pulsar-proxy-lib.table" -}}}}
{keys.table()}
{{{{- end -}}}}
{{{{- define "pulsar-proxy-lib.version" -}}}}{VERSION}{{{{- end -}}}}
"""


def files() -> Mapping[Path, str]:
    written = {LIBRARY / "templates/_table.tpl": table_template()}
    for chart in (LIBRARY, GATEWAY):
        defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
        dependencies = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8")).get("dependencies", [])
        # Helm puts the values of a dependency beside those of its chart.
        others = [dependency["name"] for dependency in dependencies]
        written[chart / "values.schema.json"] = schema.values_schema(f"Values of {chart.name}", defaults, others)
        written[chart / "README.md"] = readme.with_values(chart / "README.md", chart / "values.yaml")
    return written
