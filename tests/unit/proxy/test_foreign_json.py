"""JSON from outside: a few KB of brackets are an error of its sender, whoever reads it, and never one of the proxy."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).resolve().parents[3]
BRACKETS = b"[" * 15_000


def unguarded(tree: ast.AST, *, guarded: bool = False) -> Iterator[int]:
    """Yield the lines where `json.loads` is called outside a `try` that names RecursionError."""
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "json.loads" and not guarded:
        yield tree.lineno
    for name, value in ast.iter_fields(tree):
        inside = guarded
        if isinstance(tree, ast.Try) and name == "body":
            inside = inside or any("RecursionError" in ast.unparse(each.type) for each in tree.handlers if each.type)
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.AST):
                yield from unguarded(node, guarded=inside)


def test_the_parser_gives_up_on_brackets_with_an_error_that_is_no_value_error() -> None:
    with pytest.raises(RecursionError):
        json.loads(BRACKETS)
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(BRACKETS)


@pytest.mark.threat("json-brackets")
def test_every_parser_of_json_expects_that() -> None:
    found = {
        str(path.relative_to(ROOT)): count
        for path in sorted((ROOT / "proxy").rglob("*.py"))
        if (count := len(list(unguarded(ast.parse(path.read_text(encoding="utf-8"))))))
    }
    # The one who asks the issuer expects both errors, and names them (tests/unit/proxy/auth/test_oauth2.py).
    assert found == {"proxy/auth/own/oauth2.py": 1}
