"""Write docs/reference/events.md and docs/reference/event-v3.schema.json from the table of fields of an event."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eventlog.schema import FIELDS, SCHEMA_VERSION, Field
from scripts.generated import ROOT, json_records

REFERENCE = ROOT / "docs/reference"
SCHEMA_NAME = f"event-v{SCHEMA_VERSION}.schema.json"
JSON_TYPES = {"string": "string", "int16": "integer", "int32": "integer", "int64": "integer", "bool": "boolean"}
BITS = {"int16": 16, "int32": 32, "int64": 64}
INTRODUCTION = f"""\
<!-- Written by scripts/generate_events.py from eventlog/schema.py; do not edit here. -->

# Events

One event for each topic-list request and for each frame of a topic-list watcher that was limited, written at its end
(`eventLogDirectory`, `eventLogTopic`). An event is one JSON object with all of these fields; as JSON Schema:
[{SCHEMA_NAME}]({SCHEMA_NAME}).

Requests that are refused without being decoded have no event, and no metric counts them as topic-list requests: those
whose frame is larger than 4 KiB, and what is no request, as text that is not UTF-8, which ends the connection.

Schema version {SCHEMA_VERSION}. A field is never removed, renamed or given another type. A new one may be null, and
comes with a new version, the one in its row. Readers pass over fields that they do not know.

`seq` counts the events of one start of one proxy, those included that a sink has dropped: the same event has the same
`(proxy_id, boot_id, seq)` in files and in the topic, and whoever reads both, or reads one twice, keeps one of each. A
gap in `seq` is a loss, and `dropped_before` of the next event says how large it is; the two differ between files and
topic, because each sink loses events of its own. A loss behind which no event follows, at a proxy's end, is in its log
and its metrics alone.

No event and no list is a request in a frame of more than 4 KiB, which is refused undecoded, or one that cannot be
decoded, a text that is no UTF-8 for instance, which ends its connection.

**Files** are named `events-<proxy>-<boot>-<number>.jsonl.gz`: gzip, one event a line. While a file is written its name
begins with a dot and ends in `.open`, and it is locked (flock). Every flush ends a gzip member, so that a file that was
never finished can be read up to its last flush; the next proxy that works in the directory cuts it there and finishes
it. If it is damaged, the flushes that are sound are finished, also those behind the damage, and the file as it was
stays, its name beginning with a dot and ending in `.damaged`. Of a file that was damaged after it was finished,
`pulsar-proxy recover-events FILE...` copies the sound flushes to `<name>.recovered.jsonl.gz` beside it, which the proxy
never deletes. **Messages** of the topic hold one event each, without the line's end, and have the property
`schema_version`.
"""


def row(field: Field) -> str:
    kind = f"{field.type}, may be null" if field.nullable else field.type
    meaning = field.meaning
    if field.values:
        meaning += " One of " + ", ".join(f"`{value}`" for value in field.values) + "."
    return f"| `{field.name}` | {kind} | {field.unit} | {field.since} | {meaning.replace('|', chr(92) + '|')} |"


def page() -> str:
    lines = [INTRODUCTION, "| field | type | unit | since | meaning |", "|---|---|---|---|---|"]
    lines += map(row, FIELDS)
    return "\n".join(lines) + "\n"


def property_of(field: Field) -> dict[str, Any]:
    name = JSON_TYPES[field.type]
    described: dict[str, Any] = {"type": [name, "null"] if field.nullable else name}
    if field.name == "schema_version":
        described["const"] = SCHEMA_VERSION
    if field.values:
        described["enum"] = [*field.values, None] if field.nullable else list(field.values)
    if field.type in BITS:
        # Nothing that is counted or measured here can be below 0.
        described |= {"minimum": 0, "maximum": 2 ** (BITS[field.type] - 1) - 1}
    return {**described, "description": f"{field.meaning} ({field.unit})" if field.unit else field.meaning}


def schema() -> str:
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Event of pulsar-proxy-sidecar, version {SCHEMA_VERSION}",
        "description": "Written by scripts/generate_events.py from eventlog/schema.py; do not edit here.",
        "type": "object",
        "properties": {field.name: property_of(field) for field in FIELDS},
        "required": [field.name for field in FIELDS if field.since == 1],
        "additionalProperties": True,
    }
    return json_records(document) + "\n"


def files() -> Mapping[Path, str]:
    return {REFERENCE / "events.md": page(), REFERENCE / SCHEMA_NAME: schema()}
