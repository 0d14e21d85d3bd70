"""Count the events of each sink."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from proxy.core.counters import RoomCounters, SharedCounters

# Names of the threads that write begin with this; internal errors of the event log are counted under it.
THREAD_NAME: Final = "event log"


class SinkNumbers(NamedTuple):
    """The numbers of a sink of the event log, read at scrape time."""

    written: int
    dropped: int
    bytes_written: int
    errors: int
    buffer_bytes: int


class EventLogCounters(RoomCounters):
    """The event log's numbers: `sinks` and `files` return the current counts; `topic_keeps` is None if not known."""

    __slots__ = ("files", "sinks", "topic_keeps")

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.sinks: Callable[[], Mapping[str, SinkNumbers]] = dict
        self.files: Callable[[], Mapping[str, int]] = dict
        self.topic_keeps: bool | None = None
