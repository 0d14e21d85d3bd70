"""Count client connections, and the commands and bytes of those in lookup mode."""

from collections.abc import Callable

from proxy.core.counters import RoomCounters, SharedCounters


class ClientCounters(RoomCounters):
    """The counters of clients; change the attributes directly."""

    __slots__ = (
        "active_connections",
        "binary_bytes",
        "binary_ops",
        "new_connections",
        "paused",
        "rejected_connections",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.active_connections = 0
        self.new_connections = 0
        self.rejected_connections = 0
        # Read from the pause of an operator; False without one.
        self.paused: Callable[[], bool] = bool
        self.binary_ops = 0
        self.binary_bytes = 0
