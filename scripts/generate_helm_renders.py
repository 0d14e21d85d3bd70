"""Write what the charts give for each of their ci/ values files, and the examples under deploy/pipeline.

Most renders of the gateway are kept as unified diffs against its default render, which is kept whole.
A change of a template is seen in the renders that it changes.
"""

import difflib
import re
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
DEFAULT: Final = GATEWAY / "ci/default-values.yaml"
# Renders of the gateway that are kept whole: the base of the diffs, and renders that share too little with the base.
WHOLE: Final = {"default", "all", "pipeline", "pipeline-spark-operator"}
HUNK: Final = re.compile(r"@@ -(\d+)")


def golden_path(values: Path) -> Path:
    """Return the file that keeps the render of a values file."""
    name = _name(values)
    kept_whole = values.parents[1] != GATEWAY or name in WHOLE
    return GOLDEN / f"{values.parents[1].name}-{name}.{'yaml' if kept_whole else 'diff'}"


def golden_text(values: Path) -> str:
    """Return the render that is kept for a values file; raises ValueError for a diff that does not fit its base."""
    path = golden_path(values)
    text = path.read_text(encoding="utf-8")
    return text if path.suffix == ".yaml" else patched(golden_path(DEFAULT).read_text(encoding="utf-8"), text)


def difference(base: str, text: str, name: str) -> str:
    """Return the unified diff that `patched` turns back into `text`."""
    old, new = base.splitlines(keepends=True), text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, "default", name, n=2))


def patched(base: str, diff: str) -> str:
    """Return what a unified diff makes of `base`; raises ValueError if the diff was not made of `base`."""
    old, new, at = base.splitlines(keepends=True), [], 0
    for line in diff.splitlines(keepends=True)[2:]:
        if hunk := HUNK.match(line):
            start = int(hunk[1]) - 1
            new += old[at:start]
            at = start
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            if old[at : at + 1] != [line[1:]]:
                raise ValueError(f"line {at + 1} of the base is not {line[1:]!r}")
            new += old[at : at + 1] if line.startswith(" ") else []
            at += 1
    return "".join(new + old[at:])


def files() -> Mapping[Path, str]:
    written: dict[Path, str] = {}
    for chart in map(LoadedChart, (GATEWAY, EXAMPLE)):
        renders = {values: chart.render(read_values(values)) for values in chart.ci_values()}
        for values, render in renders.items():
            path, text = golden_path(values), render.all_text()
            kept_whole = path.suffix == ".yaml"
            written[path] = text if kept_whole else difference(renders[DEFAULT].all_text(), text, _name(values))
            if chart.path == GATEWAY:
                written |= _examples(_name(values), render)
    return written


def _name(values: Path) -> str:
    return values.name.removesuffix("-values.yaml")


def _examples(name: str, render: Render) -> Mapping[Path, str]:
    head = f"# Rendered from helm/pulsar-proxy-gateway with ci/{name}-values.yaml; change it there.\n"
    return {
        DEPLOY / f"{target}.yaml": head + render.texts[f"pulsar-proxy-gateway/templates/pipeline/{template}.yaml"]
        for template, target in EXAMPLES.get(name, {}).items()
    }
