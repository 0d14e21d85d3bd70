"""Importing locust patches sockets: what pytest imports must not import it; and nothing there imports the proxy."""

import ast
from pathlib import Path

import pytest

from tests.test_layering import modules_imported

LOAD = Path(__file__).parents[2] / "load"
IN_PYTEST = ("__init__", "books", "judge", "namespaces", "plan", "session", "__main__", "programs")


def imported(path: Path) -> set[str]:
    return set(modules_imported(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", sorted(LOAD.glob("*.py")), ids=lambda path: path.stem)
def test_load_tests_know_the_proxy_by_its_address_only(path: Path) -> None:
    assert not {module for module in imported(path) if module.partition(".")[0] == "proxy"}


@pytest.mark.parametrize("name", IN_PYTEST)
def test_modules_that_pytest_imports_leave_sockets_alone(name: str) -> None:
    allowed = {f"tests.load.{module}" for module in IN_PYTEST}
    for module in imported(LOAD / f"{name}.py"):
        assert module.partition(".")[0] not in ("locust", "gevent")
        assert not module.startswith("tests.load") or module in allowed
