"""Shared by generators of files: the root of the checkout, pages with generated parts, JSON with a record a line."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["ROOT", "json_records", "placed"]

ROOT: Final = Path(__file__).resolve().parents[1]


def placed(page: Path, parts: Mapping[tuple[str, str], str]) -> str:
    """Return the text of a page with each part between its two marks; raises ValueError if a mark is missing."""
    text = page.read_text(encoding="utf-8")
    for (begin, end), part in parts.items():
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{page.relative_to(ROOT)}: got no generated part, expected {begin!r} and {end!r}")
        text = f"{before}{begin}{part}{end}{after}"
    return text


def json_records(value: Any, depth: int = 0) -> str:
    """Return JSON with one line for each object without objects in it, so that a diff shows whole records."""
    if not any(_has_objects(each) for each in _inner(value)):
        return json.dumps(value, ensure_ascii=False)
    texts = [json_records(each, depth + 1) for each in _inner(value)]
    if isinstance(value, dict):
        texts = [f"{json.dumps(name)}: {text}" for name, text in zip(value, texts, strict=True)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    indent = "\n" + " " * depth
    return f"{begin}{indent} {f',{indent} '.join(texts)}{indent}{end}"


def _inner(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _has_objects(value: Any) -> bool:
    return (isinstance(value, dict) and bool(value)) or any(map(_has_objects, _inner(value)))
