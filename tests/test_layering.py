"""The import law and the rules that go with it, read from the source.

`protocol` may import the standard library and protobuf, `limiter` and `eventlog` the standard library,
`proxy` all of these and its libraries but none of the pipeline's, `pipeline` the event schema and its own.
Nobody imports `proxy`.

Tasks are started by a TaskGroup, or by the one module whose scopes stand in for it; anywhere else they could
outlive their connection.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"protocol", "limiter", "eventlog", "proxy", "pipeline"}
MAY_IMPORT = {
    "protocol": {"protocol", "google"},
    "limiter": {"limiter"},
    "eventlog": {"eventlog"},
    "proxy": OURS - {"pipeline"},
    "pipeline": {"pipeline", "eventlog"},
}
STDLIB_ONLY = {"limiter", "eventlog"}
# What only the extra `pipeline` installs; half a gigabyte that the proxy must never need.
OF_THE_PIPELINE = {"altair", "delta", "jinja2", "numba", "numpy", "pandas", "pyarrow", "pyspark", "vl_convert"}
# Its scopes cost no task per idle connection, as a TaskGroup would; it alone may ask a loop for a task.
TASK_OWNER = ROOT / "proxy" / "tasks.py"
LOOPS = frozenset({"loop", "_loop", "get_running_loop()", "get_event_loop()"})
FORBIDDEN = {
    "protocol": {"asyncio", "time", "random", "socket", "logging", "ssl", "threading", "selectors"},
    "limiter": {"time", "random", "socket", "logging"},
}
PACKAGES = sorted(name for name in OURS if (ROOT / name).is_dir())
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))

source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))


def modules_imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: import by the full name"
            assert node.module is not None
            yield node.module


def broken_imports(package: str, tree: ast.Module) -> list[str]:
    broken = []
    for module in modules_imported(tree):
        top = module.partition(".")[0]
        ours_but_not_allowed = top in OURS and top not in MAY_IMPORT[package]
        foreign = top not in OURS and top not in sys.stdlib_module_names and top not in MAY_IMPORT[package]
        not_allowed = foreign and package in STDLIB_ONLY | {"protocol"}
        too_heavy = package != "pipeline" and top in OF_THE_PIPELINE
        if ours_but_not_allowed or not_allowed or too_heavy or top in FORBIDDEN.get(package, ()):
            broken.append(module)
    return broken


def lone_tasks(tree: ast.Module, loops: frozenset[str] = LOOPS) -> list[int]:
    """List the lines that start a task which nobody owns."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and _starts_lone_task(node, loops))
        or (isinstance(node, ast.ImportFrom) and node.module == "asyncio" and _imports_starter(node))
    ]


def _starts_lone_task(node: ast.Attribute, loops: frozenset[str]) -> bool:
    owner = ast.unparse(node.value).split(".")[-1]
    return node.attr == "ensure_future" or (node.attr == "create_task" and owner in {"asyncio", *loops})


def _imports_starter(node: ast.ImportFrom) -> bool:
    return any(alias.name in ("create_task", "ensure_future") for alias in node.names)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@source
def test_source_obeys_the_import_law(path: Path) -> None:
    assert broken_imports(path.relative_to(ROOT).parts[0], parse(path)) == []


@source
def test_every_task_has_a_group(path: Path) -> None:
    assert lone_tasks(parse(path), frozenset() if path == TASK_OWNER else LOOPS) == []


@pytest.mark.parametrize("name", ["framing.py", "frames.py", "slabs.py", "errors.py"])
def test_framing_does_without_protobuf(name: str) -> None:
    imported = set(modules_imported(parse(ROOT / "protocol" / name)))
    assert not {module for module in imported if module.startswith(("google", "protocol.pb"))}


@pytest.mark.parametrize(
    ("package", "code", "broken"),
    [
        ("protocol", "import time", ["time"]),
        ("protocol", "from asyncio import Future", ["asyncio"]),
        ("protocol", "import structlog", ["structlog"]),
        ("protocol", "from limiter.semaphore import Permit", ["limiter.semaphore"]),
        ("protocol", "def f():\n    import proxy.app", ["proxy.app"]),
        (
            "protocol",
            "import struct\nfrom google.protobuf.message import Message\nimport protocol.frames",
            [],
        ),
        ("limiter", "import asyncio\nimport limiter.clock", []),
        ("limiter", "from random import random", ["random"]),
        ("limiter", "import google.protobuf", ["google.protobuf"]),
        ("pipeline", "import pyspark\nfrom eventlog import schema", []),
        ("pipeline", "from proxy import config", ["proxy"]),
        ("pipeline", "from limiter.semaphore import Permit", ["limiter.semaphore"]),
        ("proxy", "import uvloop\nimport limiter.semaphore", []),
        ("proxy", "import pyarrow", ["pyarrow"]),
        ("eventlog", "import orjson", ["orjson"]),
    ],
)
def test_law_finds_what_it_forbids(package: str, code: str, broken: list[str]) -> None:
    assert broken_imports(package, ast.parse(code)) == broken


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("asyncio.create_task(f())", [1]),
        ("x = 1\nself.loop.create_task(f())", [2]),
        ("asyncio.get_running_loop().create_task(f())", [1]),
        ("asyncio.ensure_future(f())", [1]),
        ("from asyncio import create_task", [1]),
        ("self._tasks.create_task(f())\ngroup.create_task(g())", []),
    ],
)
def test_law_finds_tasks_nobody_owns(code: str, lines: list[int]) -> None:
    assert lone_tasks(ast.parse(code)) == lines


def test_owner_of_tasks_may_ask_its_loop_only() -> None:
    code = ast.parse("loop.create_task(f())\nasyncio.create_task(f())")
    assert lone_tasks(code, loops=frozenset()) == [2]
