"""Tests here are marked: a JVM and Python workers start within the first of them."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # A JVM and Python workers start within the first tests.
            item.add_marker(pytest.mark.timeout(300))
