"""The fixture of version 2 is read forever: events of topic lists without the fields of throttles, and throttles."""

import json
from pathlib import Path
from typing import Any

import pytest

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
