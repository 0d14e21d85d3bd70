"""Events for tests of the pipeline: one that is whole, and changes of it."""

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from eventlog.schema import FIELDS, SCHEMA_VERSION, Field

# 2026-03-01 10:30:00 UTC.
T0_US = 1_772_361_000_000_000
HOUR_US = 3_600_000_000


def event(seq: int = 0, **changes: object) -> dict[str, object]:
    """Give an event with every field; `changes` replace some."""
    values: dict[str, object] = {field.name: _some(field) for field in FIELDS}
    values |= {"proxy_id": "proxy-a", "boot_id": "boot-1", "seq": seq, "ts_us": T0_US + seq * 1_000}
    return (
        values
        | {"schema_version": SCHEMA_VERSION, "outcome": "ok", "outcome_stage": None, "close_cause": None}
        | changes
    )


def text(events: Iterable[Mapping[str, object]]) -> str:
    """Write events as the proxy does: one JSON object a line."""
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in events)


def write_events(path: Path, events: Iterable[Mapping[str, object]]) -> Path:
    """Write a file of events, compressed if its name says so."""
    content = text(events).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
    return path


def _some(field: Field) -> object:
    if field.type == "bool":
        return False
    if field.type != "string":
        return 0
    return field.values[0] if field.values else field.name
