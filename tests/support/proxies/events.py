"""Own a sink that judges every event it is given, and compares all of them with what the proxy counted itself.

Rule: what must hold for every event is asserted here, in whatever test it is made; a test looks at what is special.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from eventlog.schema import FIELDS, REQUEST_FIELDS, Field
from eventlog.sink import STAMPED
from proxy.core.counters import Counters
from proxy.telemetry.events.timeline import STAGE_FIELDS
from tests.support.proxies.counted import counted, counted_by

EXPECTED: Final = {field.name: field for field in REQUEST_FIELDS if field.name not in STAMPED}
COSTS: Final = ("heap_held_us", "direct_held_us", "heap_byte_us", "direct_byte_us")
_RANGES: Final = {"int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}
_REFUSALS: Final = {"heap": "refused_heap", "heap_update": "refused_heap", "direct": "refused_direct"}

Event = Mapping[str, Any]


class CheckedSink:
    """Take events; `kept` has them all if asked to `keep`, else there are only sums."""

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep
        self.kept: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.requests = 0
        self.joined = 0
        self.rejected = 0
        self.outcomes: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        # By group: its events, and how many of them carry the cost.
        self.groups: dict[int, list[int]] = {}

    def put(self, event: Event) -> None:
        self.faults += faults_of(event)
        self.kinds[event["kind"]] += 1
        if self._keep:
            self.kept.append(dict(event))
        if event["kind"] != "get_topics" or event["question_hash"] is None:
            return
        self.requests += 1
        self.joined += event["coalesced"]
        outcome = list_outcome_of(event)
        if outcome is None:
            self.rejected += 1
        else:
            self.outcomes[outcome] += 1
        if event["group_id"] is not None:
            group = self.groups.setdefault(event["group_id"], [0, 0])
            group[0] += 1
            group[1] += event["carries_cost"]

    def unlike(self, counters: Counters) -> list[str]:
        """Say where the events differ from what the proxy counted."""
        pairs = {
            "requests": (self.requests, counted(counters, "get_topics_of_namespace_requests")),
            "rejected": (self.rejected, counted(counters, "rejected_get_topics_of_namespace_requests")),
            "joined": (self.joined, counted(counters, "lists_joined")),
            "outcomes": (
                dict(self.outcomes),
                {name: n for name, n in counted_by(counters, "lists_answers").items() if n},
            ),
            "groups without exactly one cost": ([n for n, (_, costs) in self.groups.items() if costs != 1], []),
            "faults": (self.faults[:5], []),
        }
        return [f"{name}: expected {want}, got {got}" for name, (got, want) in pairs.items() if got != want]


def list_outcome_of(event: Event) -> str | None:
    """Give the list outcome of the metrics that the event stands for; None for a rejected request."""
    outcome, stage = event["outcome"], event["outcome_stage"]
    if outcome in ("ok", "cancelled"):
        return {"ok": "answered", "cancelled": "cancelled"}[outcome]
    if outcome == "queue_full" and stage == "client":
        return None
    if stage in _REFUSALS and outcome in ("timeout", "queue_full"):
        return _REFUSALS[stage]
    return "timed_out" if outcome == "timeout" else "failed"


def faults_of(event: Event) -> list[str]:
    """Say what is wrong with an event, whatever it is about."""
    if event["kind"] == "throttle":
        later = {field.name for field in FIELDS if field.since > 1}
        return [f"fields: {event.keys()}"] if not EXPECTED.keys() <= event.keys() <= EXPECTED.keys() | later else []
    if list(event) != list(EXPECTED):
        return [f"fields: {set(event) ^ set(EXPECTED)} missing, too much or not in their order"]
    found = [f"{name}: {event[name]!r}" for name, field in EXPECTED.items() if not _fits(event[name], field)]
    if sum(event[field] or 0 for field in STAGE_FIELDS) != event["total_us"]:
        found.append(f"stages do not add up to {event['total_us']}: {[event[field] for field in STAGE_FIELDS]}")
    rules = {
        "a stage if it did not end well": (event["outcome_stage"] is None) == (event["outcome"] == "ok"),
        "a time of leaving if it left": (event["cancelled_after_us"] is None) == (event["outcome"] != "cancelled"),
        "a cause if it left": (event["close_cause"] is None) == (event["outcome"] != "cancelled"),
        "a cost if it carries one": all((event[cost] is None) != event["carries_cost"] for cost in COSTS),
        "a response if it is ok": (event["response_bytes"] is not None) == (event["outcome"] == "ok"),
        "a group or neither size nor share": event["group_id"] is not None or not event["coalesced"],
    }
    return found + [f"expected {rule}: {event}" for rule, holds in rules.items() if not holds]


def _fits(value: object, field: Field) -> bool:
    if value is None:
        return field.nullable
    if field.type == "string":
        return isinstance(value, str) and (not field.values or value in field.values)
    if field.type == "bool":
        return isinstance(value, bool)
    return type(value) is int and 0 <= value < _RANGES[field.type]
