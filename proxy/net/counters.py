"""Count the bytes that the kernel holds for clients, also for those that have ended, and awaited PROXY headers."""

from enum import StrEnum

from proxy.core.counters import RoomCounters, SharedCounters
from proxy.net.buffers.kernel_memory import KernelMemory


class EndedReset(StrEnum):
    """Why a peer was reset that had not taken all bytes of a connection that has ended."""

    STALLED = "stalled"
    TOO_LONG = "too_long"
    NO_ROOM = "no_room"


class NetCounters(RoomCounters):
    """The counters of sockets; change the attributes directly."""

    __slots__ = (
        "awaited_headers",
        "client_send_buffer_bytes",
        "ended_bytes",
        "ended_resets",
        "ended_sockets",
        "evicted_bytes",
        "send_memory",
        "small_buffer_answers",
        "stalled_readers",
        "writers",
        "writers_kernel_bytes",
    )

    def __init__(self, shared: SharedCounters | None = None) -> None:
        super().__init__(shared)
        self.awaited_headers = 0
        self.client_send_buffer_bytes = 0
        self.ended_bytes = self.ended_sockets = 0
        self.ended_resets: dict[str, int] = dict.fromkeys(map(str, EndedReset), 0)
        self.evicted_bytes = 0
        # The memory of send buffers beyond the small ones; None until there is one.
        self.send_memory: KernelMemory | None = None
        self.small_buffer_answers = 0
        self.stalled_readers = 0
        self.writers = 0
        self.writers_kernel_bytes = 0
