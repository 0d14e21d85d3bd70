"""Count the events of each sink."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from proxy.core.counters import RoomCounters, SharedCounters


class SinkNumbers(NamedTuple):
    """The counts of one sink, read when somebody scrapes."""

    written: int
    dropped: int
    bytes_written: int
    errors: int
    buffer_bytes: int


class EventLogCounters(RoomCounters):
    """The counts of the event log: sinks and files count for themselves, and are asked; None: not known."""

    __slots__ = ("files", "sinks", "topic_keeps")

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.sinks: Callable[[], Mapping[str, SinkNumbers]] = dict
        self.files: Callable[[], Mapping[str, int]] = dict
        self.topic_keeps: bool | None = None
