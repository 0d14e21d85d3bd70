"""What the topic of the event log needs that the proxy alone does not have."""

from importlib.util import find_spec
from typing import Final

__all__ = ["MISSING_CLIENT", "client_missing"]

MISSING_CLIENT: Final = "got a topic, expected none, or the extra `events` to be installed (pulsar-client)"


def client_missing() -> bool:
    """Tell whether pulsar-client is not installed; it is not imported for this."""
    return find_spec("pulsar") is None
