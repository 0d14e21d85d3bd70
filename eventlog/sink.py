"""The interface between the makers of events and the event log.

Rule: a sink costs its caller next to nothing: it never blocks, never fails and returns nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["STAMPED", "EventSink", "SinkCounts"]

# Fields that the event log adds to each event; makers of events leave these out.
STAMPED: Final = ("schema_version", "proxy_id", "boot_id", "cluster", "seq", "dropped_before")


# Stores an event, which has all fields of the schema but `STAMPED`, and which the caller must not change afterwards.
EventSink: TypeAlias = Callable[[Mapping[str, object]], None]


@dataclass(slots=True)
class SinkCounts:
    """Counts of the events of a sink; only its thread writes them, any thread may read them.

    No count ever decreases. `lost` counts events that had left the buffer, also those that were written and are gone
    with their file; `errors` counts failed attempts, most of which succeed later.
    """

    written: int = 0
    bytes_written: int = 0
    errors: int = 0
    lost: int = 0
