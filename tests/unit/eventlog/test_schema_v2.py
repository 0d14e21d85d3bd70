"""The fixture of version 2 is read forever: events of topic lists without the fields of throttles, and throttles."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.schema import FIELDS, SCHEMA_VERSION
from tests.unit.eventlog.test_schema_v1 import faults

ROOT = Path(__file__).parents[3]
# Written by hand when version 2 was made, and never changed.
EVENTS: list[dict[str, Any]] = [
    json.loads(line) for line in (ROOT / "tests/fixtures/events-v2.jsonl").read_text().splitlines()
]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/reference/event-v2.schema.json").read_text())


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event['kind']}-{event['seq']}")
def test_event_of_version_2_fits_its_schema(event: dict[str, Any]) -> None:
    assert faults(event, SCHEMA) == []


def test_later_fields_may_be_null_or_absent() -> None:
    later = [field for field in FIELDS if field.since > 1]
    assert later
    assert max(field.since for field in FIELDS) == SCHEMA_VERSION
    assert all(field.nullable for field in later)
    assert not {field.name for field in later} & set(SCHEMA["required"])
    assert not {field.name for field in later} & set(EVENTS[0])
