"""The client library that the topic of the event log needs."""

from importlib.util import find_spec
from typing import Final

__all__ = ["MISSING_CLIENT", "client_missing"]

MISSING_CLIENT: Final = "got a topic, expected none, or the extra `events` to be installed (pulsar-client)"


def client_missing() -> bool:
    """Return whether pulsar-client is not installed, without importing it."""
    return find_spec("pulsar") is None
