"""Write what the charts give for some of their ci/ values files, and the examples under deploy/pipeline.

A change of a template is seen in the renders that it changes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from scripts.generated import ROOT
from scripts.helm.render import EXAMPLE, GATEWAY, LoadedChart, Render, read_values

GOLDEN: Final = ROOT / "tests/helm/golden"
DEPLOY: Final = ROOT / "deploy/pipeline"
# Where each template of the pipeline goes, by the values that it is rendered with.
EXAMPLES: Final = {
    "pipeline": {name: f"kubernetes/{name}" for name in ("compact", "ingest", "report", "storage")},
    "pipeline-spark-operator": {
        f"spark-{name}": f"spark-operator/{name}" for name in ("compact", "ingest", "report", "usage")
    },
}
# Between them they use every template but those of the pipeline, which are under DEPLOY.
KEPT: Final = ("default", "all", "native", "plain")


def files() -> Mapping[Path, str]:
    written: dict[Path, str] = {}
    for chart in map(LoadedChart, (GATEWAY, EXAMPLE)):
        for values in chart.ci_values():
            name = values.name.removesuffix("-values.yaml")
            if name in KEPT or name in EXAMPLES:
                render = chart.render(read_values(values))
                if name in KEPT:
                    written[GOLDEN / f"{chart.path.name}-{name}.yaml"] = render.all_text()
                written |= _examples(name, render)
    return written


def _examples(name: str, render: Render) -> Mapping[Path, str]:
    head = f"# Rendered from helm/pulsar-proxy-gateway with ci/{name}-values.yaml; change it there.\n"
    return {
        DEPLOY / f"{target}.yaml": head + render.texts[f"pulsar-proxy-gateway/templates/pipeline/{template}.yaml"]
        for template, target in EXAMPLES.get(name, {}).items()
    }
