"""The native extension, and an engine for one test."""

from collections.abc import Iterator
from typing import Any

import pytest

from proxy.core.native import native
from tests.native.relays import Relays
from tests.support.tools import unusable


@pytest.fixture(scope="session")
def extension() -> Any:
    """Give the module, or skip the test and record the gap; `make native` builds it where cargo is."""
    found = native()
    if not found.has("RelayEngine"):
        unusable("native extension", found.missing or "without relays")
    return found.module


@pytest.fixture
def relays(extension: Any) -> Iterator[Relays]:
    """Give an engine with two threads, which has stopped when the test ends."""
    with Relays(extension, threads=2) as made:
        yield made
