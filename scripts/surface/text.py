"""Make what was seen comparable: placeholders for values of one run, shapes of JSON, and the differ."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

# Fields whose values are fixed words that scripts compare with; of all others only the type counts.
WORDS: Final = frozenset(
    {"changes", "configured", "dynamic", "kind", "level", "method", "mode", "origin", "path", "result", "unit"}
)
# An address of the test machine, whatever port the kernel chose.
_ADDRESS: Final = re.compile(r"(127\.0\.0\.1|localhost)([:_])\d+")


def plain(text: str, places: Mapping[str, str] | None = None) -> str:
    """Return a text with placeholders for the ports and the places (text: placeholder) of this run."""
    for found, placeholder in (places or {}).items():
        text = text.replace(found, placeholder)
    return _ADDRESS.sub(r"\1\2PORT", text)


def plain_values(value: Any, places: Mapping[str, str]) -> Any:
    """Return a document whose texts have placeholders, and whose other values are as they were."""
    return json.loads(plain(json.dumps(value), places))


def shape(value: Any, field: str = "") -> Any:
    """Return the types of a document: its keys, one merged row for each list, and the values of `WORDS`."""
    if isinstance(value, dict):
        return merged({plain(key): shape(each, key)} for key, each in value.items()) if value else {}
    if isinstance(value, list):
        return [merged(shape(each, field) for each in value)] if value else []
    if field in WORDS and isinstance(value, str | bool):
        return plain(f"{type(value).__name__} {value}")
    # A number is whole or not by chance.
    return {bool: "bool", int: "number", float: "number", str: "str"}.get(type(value), "null")


def merged(shapes: Iterable[Any]) -> Any:
    """Return one shape for many: all keys of all, and every type that was seen for each."""
    sides = list(shapes)
    sides = [each for each in sides if each != []] or sides[:1]
    if all(isinstance(side, dict) for side in sides):
        keys = {key: None for side in sides for key in side}
        return {key: merged(side[key] for side in sides if key in side) for key in keys}
    if all(isinstance(side, list) for side in sides):
        return [merged(row for side in sides for row in side)] if sides[0] else []
    texts = (side if isinstance(side, str) else json.dumps(side, sort_keys=True) for side in sides)
    return " | ".join(sorted({part for text in texts for part in text.split(" | ")}))


def without(value: Any, names: frozenset[str]) -> Any:
    """Return a document without the fields of these names, at any depth."""
    if isinstance(value, dict):
        return {key: without(each, names) for key, each in value.items() if key not in names}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def written(theme: object) -> str:
    """Return a theme as the text of its file; sets become sorted lists."""
    return json.dumps(theme, indent=1, sort_keys=True, default=sorted, ensure_ascii=False) + "\n"


def differences(theme: str, before: str, now: str) -> str:
    """Return a unified diff of one theme; empty if nothing differs."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), f"{theme} before", f"{theme} now", lineterm="")
    return "\n".join(lines)
