"""Write what the charts give for each of their ci/ values files, and the examples under deploy/pipeline.

`--check` writes nothing and fails if a file differs: a change of a template is seen in what it changes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.generated import write_or_check  # noqa: E402
from scripts.helm.render import EXAMPLE, GATEWAY, LoadedChart, Render, read_values  # noqa: E402

GOLDEN: Final = ROOT / "tests/helm/golden"
DEPLOY: Final = ROOT / "deploy/pipeline"
# Where each template of the pipeline goes, by the values that it is rendered with.
EXAMPLES: Final = {
    "pipeline": {"ingest": "kubernetes/ingest", "report": "kubernetes/report", "storage": "kubernetes/storage"},
    "pipeline-spark-operator": {"spark-ingest": "spark-operator/ingest", "spark-report": "spark-operator/report"},
}


def golden_path(values: Path) -> Path:
    """Give the place of what a values file gives."""
    return GOLDEN / f"{values.parents[1].name}-{values.name.removesuffix('-values.yaml')}.yaml"


def files() -> Mapping[Path, str]:
    written: dict[Path, str] = {}
    for chart in map(LoadedChart, (GATEWAY, EXAMPLE)):
        for values in chart.ci_values():
            render = chart.render(read_values(values))
            written[golden_path(values)] = render.all_text()
            if chart.path == GATEWAY:
                written |= _examples(values.name.removesuffix("-values.yaml"), render)
    return written


def _examples(name: str, render: Render) -> Mapping[Path, str]:
    head = f"# Rendered from helm/pulsar-proxy-sidecar with ci/{name}-values.yaml; change it there.\n"
    return {
        DEPLOY / f"{target}.yaml": head + render.texts[f"pulsar-proxy-sidecar/templates/pipeline/{template}.yaml"]
        for template, target in EXAMPLES.get(name, {}).items()
    }


def main() -> int:
    return write_or_check("scripts.generate_helm_renders", files)


if __name__ == "__main__":
    raise SystemExit(main())
