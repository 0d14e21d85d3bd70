"""The fixture of version 3 is read forever: events that name their cluster, and all limits in force."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.schema import FIELDS, SCHEMA_VERSION
from tests.unit.eventlog.test_schema_v1 import faults

ROOT = Path(__file__).parents[3]
# Written by hand when version 3 was made, and never changed.
EVENTS: list[dict[str, Any]] = [
    json.loads(line) for line in (ROOT / "tests/fixtures/events-v3.jsonl").read_text().splitlines()
]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/reference/event-v3.schema.json").read_text())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event['kind']}-{event['seq']}")
def test_event_of_version_3_fits_its_schema(event: dict[str, Any]) -> None:
    assert faults(event, SCHEMA) == []


def test_later_fields_may_be_null_or_absent() -> None:
    later = [field for field in FIELDS if field.since > 1]
    assert later
    assert max(field.since for field in FIELDS) == SCHEMA_VERSION
    assert all(field.nullable for field in later)
    assert not {field.name for field in later} & set(SCHEMA["required"])
    first_version = json.loads((ROOT / "tests/fixtures/events-v1.jsonl").read_text().splitlines()[0])
    assert not {field.name for field in later} & set(first_version)
