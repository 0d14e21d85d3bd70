"""Render a chart of this repository, offline.

Rule: texts are those of Helm's own code, with nothing added. NOTES.txt is text, not a manifest, and is kept apart.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml
from helm_python import Chart

from scripts.generated import ROOT

GATEWAY: Final = ROOT / "helm/pulsar-proxy-gateway"
LIBRARY: Final = ROOT / "helm/pulsar-proxy-sidecar-lib"
EXAMPLE: Final = ROOT / "helm/examples/orders"

_AS_THEY_STAND: Final = ("/prometheusrule.yaml", "/dashboards.yaml")

Values = dict[str, Any]
Document = dict[str, Any]


class LoadedChart:
    """A chart loaded once, as loading takes longer than rendering."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._chart = Chart.load(path)

    @property
    def metadata(self) -> Values:
        """The content of Chart.yaml."""
        return self._chart.metadata

    def render(self, values: Mapping[str, Any], *, release: str = "pulsar-proxy") -> "Render":
        """Render the chart; raises helm_python's HelmError with the text that Helm shows."""
        return Render(self._chart.render(dict(values), name=release, namespace="pulsar"))

    def ci_values(self) -> list[Path]:
        """Return the chart's values files for CI, in order."""
        return sorted(self.path.glob("ci/*-values.yaml"))


class Render:
    """The result of rendering: texts by the path of their template."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.notes = "".join(text for path, text in texts.items() if path.endswith("NOTES.txt"))
        self.texts = {
            path: text.strip() + "\n"
            for path, text in sorted(texts.items())
            if not path.endswith(("NOTES.txt", ".tpl")) and text.strip()
        }

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """The manifests, parsed once."""
        # The compiled parser is needed: every render has a dashboard of 2,000 lines.
        found = (document for text in self.texts.values() for document in yaml.load_all(text, yaml.CSafeLoader))
        return tuple(document for document in found if document)

    def of_kind(self, kind: str) -> list[Document]:
        """Return the manifests of a kind."""
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str) -> Document:
        """Return the only manifest of a kind."""
        (document,) = self.of_kind(kind)
        return document

    def all_text(self) -> str:
        """Return all texts as a stream, without rules and dashboards, which are unchanged files of the chart."""
        kept = {path: text for path, text in self.texts.items() if not path.endswith(_AS_THEY_STAND)}
        return "".join(f"---\n# Source: {path}\n{text}" for path, text in kept.items())


def read_values(path: Path) -> Values:
    """Read a values file."""
    values: Values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return values
