"""The fixture of version 1 is read for ever, and the JSON Schema means what the table of fields says."""

import json
from pathlib import Path
from typing import Any

import pytest

from eventlog.schema import FIELD_NAMES, FIELDS, KINDS, OUTCOMES
from scripts.generate_events import property_of

ROOT = Path(__file__).parents[3]
# Written by hand when version 1 was made. It is never changed: it stands for the files that are out there.
FIXTURE = ROOT / "tests/fixtures/events-v1.jsonl"
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/reference/event-v1.schema.json").read_text())
EVENTS: list[dict[str, Any]] = [json.loads(line) for line in FIXTURE.read_text().splitlines()]
PARTS = [field.name for field in FIELDS if field.unit == "us" and field.name.endswith(("_wait_us", "upstream_us",
         "read_us", "write_us"))]  # fmt: skip


def faults(event: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> list[str]:
    """Validate what our schemas use of JSON Schema: required, type, const, enum, minimum, maximum."""
    found = [f"{name} is missing" for name in schema["required"] if name not in event]
    for name, rules in schema["properties"].items():
        if name in event:
            found += [f"{name}: {fault}" for fault in _faults_of(event[name], rules)]
    return found


def _faults_of(value: object, rules: dict[str, Any]) -> list[str]:
    kinds = rules["type"] if isinstance(rules["type"], list) else [rules["type"]]
    if not any(_is(value, kind) for kind in kinds):
        return [f"{value!r} is no {kinds}"]
    found = []
    if "const" in rules and value != rules["const"]:
        found.append(f"{value!r} is not {rules['const']!r}")
    if "enum" in rules and value not in rules["enum"]:
        found.append(f"{value!r} is none of {rules['enum']}")
    if isinstance(value, int) and "minimum" in rules and not rules["minimum"] <= value <= rules["maximum"]:
        found.append(f"{value} is out of range")
    return found


def _is(value: object, kind: str) -> bool:
    types: dict[str, type] = {"string": str, "boolean": bool, "integer": int, "null": type(None)}
    return isinstance(value, types[kind]) and (kind != "integer" or not isinstance(value, bool))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event['kind']}-{event['outcome']}-{event['seq']}")
def test_event_of_version_1_fits_its_schema(event: dict[str, Any]) -> None:
    assert faults(event) == []


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event["seq"]))
def test_parts_of_the_time_are_its_sum(event: dict[str, Any]) -> None:
    assert sum(event[part] or 0 for part in PARTS) == event["total_us"]


def test_fixture_has_every_kind_and_every_outcome() -> None:
    assert {event["kind"] for event in EVENTS} == set(KINDS) - {"throttle"}
    assert {event["outcome"] for event in EVENTS} == set(OUTCOMES)


def test_fixture_has_the_fields_of_version_1_and_no_others() -> None:
    first = {field.name for field in FIELDS if field.since == 1}
    assert all(set(event) == first for event in EVENTS)
    assert first <= set(FIELD_NAMES)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"kind": "other"}, "kind: 'other' is none of"),
        ({"seq": "1"}, "seq: '1' is no"),
        ({"seq": True}, "seq: True is no"),
        ({"dropped_before": 2**31}, "dropped_before: 2147483648 is out of range"),
        ({"total_us": -1}, "total_us: -1 is out of range"),
        ({"tenant": None}, "tenant: None is no"),
        ({"outcome_stage": "nowhere"}, "outcome_stage: 'nowhere' is none of"),
        ({"schema_version": 2}, "schema_version: 2 is not 1"),
    ],
)
def test_schema_refuses(change: dict[str, Any], fault: str) -> None:
    found = faults(EVENTS[0] | change)
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_schema_asks_for_every_field_of_its_version() -> None:
    event = dict(EVENTS[0])
    del event["principal"]
    assert faults(event) == ["principal is missing"]


def test_nullable_text_of_a_list_may_be_null() -> None:
    field = next(field for field in FIELDS if field.name == "mode")
    assert None in property_of(field)["enum"]


def test_readers_may_meet_fields_that_they_do_not_know() -> None:
    assert faults(EVENTS[0] | {"of_the_future": 1}) == []
    assert SCHEMA["additionalProperties"] is True
