"""Declare metrics: the names for Prometheus and OpenTelemetry, kind, unit, labels and meaning.

Rule: an instrument is the only declaration of a metric; the Prometheus text, the OTLP export and the reference page are
made from it. What is counted, or derived from other numbers, is declared by the module that knows it
(`proxy.core.counters`). No metrics library is imported.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal

Kind = Literal["gauge", "counter", "summary"]
OtelKind = Literal["gauge", "counter", "histogram", "up-down counter"]
Unit = Literal["", "bytes", "seconds", "milliseconds", "ratio"]
Readings = Mapping[tuple[str, ...], float]

# The suffix of a Prometheus name for each unit, and the unit in OpenTelemetry.
_SUFFIXES: Final[Mapping[Unit, str]] = {
    "": "", "bytes": "_bytes", "seconds": "_seconds", "milliseconds": "_ms", "ratio": "_ratio",
}  # fmt: skip
_OTEL_UNITS: Final[Mapping[Unit, str]] = {"": "", "bytes": "By", "seconds": "s", "milliseconds": "s", "ratio": "1"}
_MILLIS_IN: Final[Mapping[Unit, float]] = {"milliseconds": 1.0, "seconds": 1000.0}


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """A metric: its name without `_total`, its kind, and its meaning.

    `created`: export a `_created` sample too, as upstream's client library does. `better` says in what a metric of
    upstream's proxy is more exact here (docs/compatibility.md). `otel` is the OpenTelemetry name where the convention
    differs from the rule of `otel_name`; `up_down`: a gauge that OpenTelemetry calls an up-down counter.
    """

    name: str
    kind: Kind
    help: str
    _: KW_ONLY
    labels: tuple[str, ...] = ()
    unit: Unit = ""
    created: bool = False
    better: str = ""
    origin: Literal["PIP-442", "pulsar", "convention", "ours"] = "ours"
    otel: str = ""
    up_down: bool = False

    @property
    def exposed_name(self) -> str:
        """The name in Prometheus queries."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    @property
    def otel_name(self) -> str:
        """The name in OpenTelemetry.

        PIP-442 has a rule for its metrics: the Prometheus name without prefix and unit, words joined by dots. Other
        names have the first words of the Prometheus name as namespace, and no unit; a collector that translates them
        back (dots to underscores, unit and `_total` at the end) gets the names of /metrics.
        """
        if self.otel:
            return self.otel
        bare = self.name.removesuffix(_SUFFIXES[self.unit])
        if self.origin == "PIP-442":
            total = ".total" if self.kind == "counter" else ""
            return bare.removeprefix("pulsar_proxy_").replace("_", ".") + total
        for prefix in ("pulsar_proxy_", "pulsar_", "process_"):
            if bare.startswith(prefix):
                return prefix.replace("_", ".") + bare.removeprefix(prefix)
        raise AssertionError(f"{self.name}: no namespace")

    @property
    def otel_kind(self) -> OtelKind:
        """The kind in OpenTelemetry."""
        if self.kind == "summary":
            return "histogram"
        if self.kind == "counter":
            return "counter"
        return "up-down counter" if self.up_down else "gauge"

    @property
    def otel_unit(self) -> str:
        """The unit in OpenTelemetry (UCUM); PIP-442 writes 1 for plain numbers, all others have none."""
        return "1" if self.origin == "PIP-442" and not self.unit else _OTEL_UNITS[self.unit]

    @property
    def millis_per_unit(self) -> float:
        """The milliseconds in one unit of a summary."""
        return _MILLIS_IN[self.unit]
