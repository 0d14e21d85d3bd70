"""What all TLS connections of a loop share, so that no connection owns any."""

import asyncio
from typing import Final, Protocol

from proxy.core.loop_budget import LoopBudget
from proxy.net.transport import LARGE_READ_BYTES, SMALL_READ_BYTES

# The largest record: 16 KiB of plaintext, a header, and what encryption may add (RFC 8446, 5.2).
RECORD_BYTES: Final = 16 * 1024 + 5 + 256


class BufferedEndpoint(Protocol):
    """The protocol above a TLS transport: like asyncio.BufferedProtocol, with memoryviews as buffers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...


class TlsShared:
    """The buffer for ciphertext, and the loop budgets: of handshakes, and of reads (else the same).

    `cipher` is for the largest read. `room` is what the last window was made for.
    """

    __slots__ = ("_window", "cipher", "loop_budget", "reads", "room", "small")

    def __init__(self, loop_budget: LoopBudget, reads: LoopBudget | None = None) -> None:
        self.loop_budget = loop_budget
        self.reads = loop_budget if reads is None else reads
        self.cipher = memoryview(bytearray(LARGE_READ_BYTES))
        self.small = self.cipher[:SMALL_READ_BYTES]
        self._window = self.small
        self.room = 0

    def window(self, room: int) -> memoryview:
        """Return a buffer for ciphertext that decrypts into at most `room` bytes; a small buffer for a small `room`."""
        if room != self.room:
            # Most reads have the same room as the last one: keep its slice instead of making a new one.
            self.room = room
            self._window = self.cipher[: room - RECORD_BYTES] if room - RECORD_BYTES > SMALL_READ_BYTES else self.small
        return self._window
