"""Fixtures of every version are read for ever, and the JSON Schema means what the table of fields says."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eventlog.schema import FIELDS, KINDS, OUTCOMES, SCHEMA_VERSION

ROOT = Path(__file__).parents[3]
VERSIONS = range(1, SCHEMA_VERSION + 1)


def schema(version: int) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / f"docs/reference/event-v{version}.schema.json").read_text())
    return read


def events(version: int) -> list[dict[str, Any]]:
    """Read the fixture of a version: written by hand when it was made, and never changed."""
    return [json.loads(line) for line in (ROOT / f"tests/fixtures/events-v{version}.jsonl").read_text().splitlines()]


def faults(event: dict[str, Any], version: int = SCHEMA_VERSION) -> list[str]:
    return [fault.message for fault in Draft202012Validator(schema(version)).iter_errors(event)]


@pytest.mark.parametrize("version", VERSIONS)
def test_events_of_every_version_fit_their_schema(version: int) -> None:
    found = events(version)
    assert found
    assert [fault for event in found for fault in faults(event, version)] == []


def test_first_version_has_every_kind_and_outcome_and_its_times_add_up() -> None:
    found = events(1)
    assert {event["kind"] for event in found} == set(KINDS) - {"throttle"}
    assert {event["outcome"] for event in found} == set(OUTCOMES)
    parts = [name for name in found[0] if name.endswith(("_wait_us", "upstream_us", "read_us", "write_us"))]
    assert [sum(event[part] or 0 for part in parts) - event["total_us"] for event in found] == [0] * len(found)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "other"},
        {"seq": "1"},
        {"seq": True},
        {"dropped_before": 2**31},
        {"total_us": -1},
        {"tenant": None},
        {"outcome_stage": "nowhere"},
        {"schema_version": 2},
    ],
)
def test_schema_refuses(change: dict[str, Any]) -> None:
    assert len(faults(events(1)[0] | change, 1)) >= 1


def test_schema_asks_for_every_field_of_its_version_and_lets_others_be() -> None:
    event = events(1)[0]
    assert faults(event | {"of_the_future": 1}, 1) == []
    del event["principal"]
    assert faults(event, 1) == ["'principal' is a required property"]


def test_later_fields_may_be_null_or_absent() -> None:
    later = {field.name for field in FIELDS if field.since > 1}
    assert later
    assert all(field.nullable for field in FIELDS if field.since > 1)
    assert not later & set(schema(SCHEMA_VERSION)["required"])
    assert all(set(event) == {field.name for field in FIELDS} - later for event in events(1))
