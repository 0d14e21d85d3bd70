"""The native extension for tests that need it; a test that cannot have it is skipped."""

from typing import Any

from protocol.topic_list import CountingScanner, DelegatingScanner, NativeScannerClass
from proxy.core import native as core
from tests.support.tools import unusable


def offered(name: str) -> Any:
    """Return a class of the native extension, or skip the test and record the gap."""
    extension = core.native()
    if extension.module is None:
        unusable("native extension", extension.missing)
    return getattr(extension.module, name)


def native_class() -> NativeScannerClass | None:
    """Return the native topic-list scanner where the extension is here, for tests that also make sense without."""
    return core.native_class("TopicListScanner")


def found_by(scanner: CountingScanner) -> tuple[bool, bool, str, int, int]:
    """Return all that a scanner has found."""
    return scanner.filtered, scanner.changed, scanner.topics_hash, scanner.topic_count, scanner.name_bytes


def native_scanner(total: int) -> DelegatingScanner:
    """Return a scanner of the native extension, or skip the test and record the gap."""
    return DelegatingScanner(total, offered("TopicListScanner"))
