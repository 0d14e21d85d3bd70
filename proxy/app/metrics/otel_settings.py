"""Read the environment variables for the export of metrics to an OpenTelemetry collector (ADR 18).

Rule: pure functions, without the library. The export is off unless `OTEL_SDK_DISABLED=false`, as in upstream's proxy. A
setting that cannot be honoured leads to a note in the log and in `check-config`, never to a failed start. The exporter
reads the variables of the connection itself (`OTEL_EXPORTER_OTLP_*`: endpoint, headers, certificates, compression,
timeout); only an endpoint that is no URL leads to a note here, because the exporter would report it at the first
export.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, Literal
from urllib.parse import urlsplit

from proxy.core.log import Logger
from proxy.core.secrets import masked

Temporality = Literal["cumulative", "delta", "lowmemory"]

# The defaults of the OpenTelemetry specification.
INTERVAL_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 30.0

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_TEMPORALITY: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_LIBRARY: Final = "opentelemetry.exporter.otlp.proto.http"


@dataclass(frozen=True, slots=True)
class OtelSettings:
    """The interval and the time-out of exports, and whether counts start at the last export or at the start."""

    interval_seconds: float = INTERVAL_SECONDS
    timeout_seconds: float = TIMEOUT_SECONDS
    temporality: Temporality = "cumulative"


def otel_settings(environ: Mapping[str, str]) -> tuple[OtelSettings | None, list[str]]:
    """Return the settings, None without an export, and the notes for the operator, with secrets masked."""
    notes: list[str] = []
    if not _wanted(environ, notes):
        return None, notes
    if _library_missing():
        return None, [*notes, "OTEL_SDK_DISABLED: got false, expected true, or the extra `otel` to be installed"]
    interval = _seconds(environ, "OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_SECONDS, notes)
    timeout = _seconds(environ, "OTEL_METRIC_EXPORT_TIMEOUT", TIMEOUT_SECONDS, notes)
    _look_at_endpoint(environ, notes)
    return OtelSettings(interval, timeout, _temporality(environ, notes)), notes


def export_wanted(environ: Mapping[str, str], log: Logger) -> OtelSettings | None:
    """Return the export settings of the environment, None without an export; log a warning for each faulty variable."""
    settings, notes = otel_settings(environ)
    for note in notes:
        log.warning("opentelemetry", detail=note)
    return settings


def _wanted(environ: Mapping[str, str], notes: list[str]) -> bool:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower()
    if disabled != "false":
        endpoint = _first(environ, _ENDPOINTS)
        if endpoint is not None and not disabled:
            notes.append(f"{endpoint[0]} is set, but no metrics are exported: that takes OTEL_SDK_DISABLED=false")
        return False
    exporters = {name.strip() for name in environ.get("OTEL_METRICS_EXPORTER", "otlp").split(",")} - {""}
    if exporters - {"otlp", "none"}:
        notes.append(f"OTEL_METRICS_EXPORTER: got {_shown(', '.join(sorted(exporters)))}, expected otlp or none")
    protocol = _first(environ, _PROTOCOLS)
    if protocol is not None and protocol[1] != "http/protobuf":
        notes.append(f"{protocol[0]}: got {_shown(protocol[1])}, expected http/protobuf: no metrics are exported")
        return False
    return not exporters or "otlp" in exporters


def _first(environ: Mapping[str, str], names: Iterable[str]) -> tuple[str, str] | None:
    """Return the name and value of the first variable that is set."""
    return next(((name, value) for name in names if (value := environ.get(name, "").strip())), None)


def _look_at_endpoint(environ: Mapping[str, str], notes: list[str]) -> None:
    """Add a note for an endpoint that no exporter can use, such as `collector:4317`; the exporter tries it anyway."""
    endpoint = _first(environ, _ENDPOINTS)
    if endpoint is None:
        return
    try:
        parts = urlsplit(endpoint[1])
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        notes.append(f"{endpoint[0]}: got {_shown(endpoint[1])!r}, expected http://host:port or https://host:port")


def _shown(text: str) -> str:
    # Mask before cutting: a password that is cut off might not be recognized.
    return masked(text)[:80]


def _library_missing() -> bool:
    try:
        return find_spec(_LIBRARY) is None
    except ModuleNotFoundError:  # the parent packages are missing, too
        return True


def _seconds(environ: Mapping[str, str], name: str, default: float, notes: list[str]) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        millis = float(text)
    except ValueError:
        millis = math.nan
    # Exports more often than ten times a second would be the load themselves.
    if not 100 <= millis <= 86_400_000:
        notes.append(f"{name}: got {_shown(text)!r}, expected 100 to 86400000 milliseconds: it is {default:g} s")
        return default
    return millis / 1000


def _temporality(environ: Mapping[str, str], notes: list[str]) -> Temporality:
    text = environ.get(_TEMPORALITY, "").strip().lower() or "cumulative"
    known: dict[str, Temporality] = {"cumulative": "cumulative", "delta": "delta", "lowmemory": "lowmemory"}
    if text in known:
        return known[text]
    notes.append(f"{_TEMPORALITY}: got {_shown(text)!r}, expected cumulative, delta or lowmemory: it is cumulative")
    return "cumulative"
