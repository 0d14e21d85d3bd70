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
PARTS: Final = ("compact", "ingest", "report", "storage")
# Between them they use every template but those of the pipeline, which are under DEPLOY.
KEPT: Final = ("default", "all", "native", "plain")


def files() -> Mapping[Path, str]:
    written: dict[Path, str] = {}
    for chart in map(LoadedChart, (GATEWAY, EXAMPLE)):
        for values in chart.ci_values():
            name = values.name.removesuffix("-values.yaml")
            if name in (*KEPT, "pipeline"):
                render = chart.render(read_values(values))
                if name in KEPT:
                    written[GOLDEN / f"{chart.path.name}-{name}.yaml"] = render.all_text()
                else:
                    written |= _examples(render)
    return written


def _examples(render: Render) -> Mapping[Path, str]:
    head = "# Rendered from helm/pulsar-proxy-gateway with ci/pipeline-values.yaml; change it there.\n"
    return {
        DEPLOY / f"kubernetes/{part}.yaml": head + render.texts[f"pulsar-proxy-gateway/templates/pipeline/{part}.yaml"]
        for part in PARTS
    }
