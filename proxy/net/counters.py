"""Count the bytes that the kernel holds for clients, and the connections that wait for a PROXY header."""

from proxy.core.counters import RoomCounters, SharedCounters


class NetCounters(RoomCounters):
    """The counters of sockets; change the attributes directly."""

    __slots__ = (
        "awaited_headers",
        "client_send_buffer_bytes",
        "evicted_bytes",
        "stalled_readers",
        "writers",
        "writers_kernel_bytes",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.awaited_headers = 0
        self.client_send_buffer_bytes = 0
        self.evicted_bytes = 0
        self.stalled_readers = 0
        self.writers = 0
        self.writers_kernel_bytes = 0
