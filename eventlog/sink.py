"""The seam between who knows events and who keeps them.

Rule: giving an event away costs the giver next to nothing: it never blocks, never fails, and is never told more.
"""

from collections.abc import Mapping
from typing import Protocol

__all__ = ["STAMPED", "EventSink"]

# What the event log itself says of each event; whoever puts one leaves these fields out.
STAMPED = ("schema_version", "proxy_id", "boot_id", "seq", "dropped_before")


class EventSink(Protocol):
    """Takes events: all fields of the schema but `STAMPED`."""

    def put(self, event: Mapping[str, object]) -> None:
        """Take one event, which is the sink's from now on; it never blocks and never raises."""
