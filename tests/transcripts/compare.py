"""Compare two transcripts of one script: what each side got, event by event, field by field."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.transcripts.model import Event, Transcript


@dataclass(frozen=True, slots=True)
class Found:
    """One place where ours is otherwise: `where` is a side, the number of what it got, and a field of it.

    None is nothing there; values are as they stand in the transcripts, structures as JSON.
    """

    where: str
    java: str | None
    ours: str | None


def differences(java: Transcript, ours: Transcript) -> list[Found]:
    """Find all places where the two are not equal; a side only one of them has is nothing but its events."""
    theirs, own = _by_side(java), _by_side(ours)
    found = []
    for side in dict.fromkeys([*theirs, *own]):
        for number, (one, other) in enumerate(zip_longest(theirs.get(side, ()), own.get(side, ())), start=1):
            found += _compare(f"{side}, {number}", one, other)
    return found


def _by_side(transcript: Transcript) -> dict[str, list[Event]]:
    sides: dict[str, list[Event]] = {}
    for event in transcript:
        if event.way == "got":
            sides.setdefault(event.side, []).append(event)
    return sides


def _compare(where: str, java: Event | None, ours: Event | None) -> list[Found]:
    if java is None or ours is None or java.what != ours.what:
        return [Found(where, _shown(java), _shown(ours))]
    theirs, own = _flat(java.fields), _flat(ours.fields)
    return [
        Found(f"{where}, {name}", theirs.get(name), own.get(name))
        for name in dict.fromkeys([*theirs, *own])
        if theirs.get(name) != own.get(name)
    ]


def _shown(event: Event | None) -> str | None:
    if event is None:
        return None
    return event.what if not event.fields else f"{event.what} {json.dumps(event.fields)}"


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value if isinstance(value, str) else json.dumps(value)
    return flat
