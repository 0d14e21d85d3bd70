"""The seam between who knows events and who keeps them.

Rule: giving an event away costs the giver next to nothing: it never blocks, never fails, and is never told more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["STAMPED", "EventSink", "SinkCounts"]

# What the event log itself says of each event; whoever puts one leaves these fields out.
STAMPED: Final = ("schema_version", "proxy_id", "boot_id", "seq", "dropped_before")


class EventSink(Protocol):
    """Takes events: all fields of the schema but `STAMPED`."""

    def put(self, event: Mapping[str, object]) -> None:
        """Take one event, which is the sink's from now on; it never blocks and never raises."""


@dataclass(slots=True)
class SinkCounts:
    """What became of the events of one sink; written by its thread alone, read by anybody.

    None ever falls. `lost` are events that had left the buffer, those included that were written and are gone with
    their file; `errors` counts attempts that failed, most of which succeed later.
    """

    written: int = 0
    bytes_written: int = 0
    errors: int = 0
    lost: int = 0
