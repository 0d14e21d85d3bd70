"""What all TLS connections of a loop share, so that none of them has any of it for itself."""

import ssl
from collections.abc import Callable
from typing import Any, Final

from proxy.core.loop_budget import LoopBudget
from proxy.net.transport import LARGE_READ_BYTES, SMALL_READ_BYTES

# The largest record: 16 KiB of plaintext, a header, and what encryption may add to it.
RECORD_BYTES: Final = 16 * 1024 + 5 + 256

Unseal = Callable[[int, memoryview], int]
Seal = Callable[[bytes | bytearray | memoryview], int]


class TlsShared:
    """The BIOs, the place for ciphertext, and turns for handshakes.

    `cipher_bytes` is the largest read: that of a busy relay.
    """

    __slots__ = ("_window", "_window_for", "cipher", "incoming", "loop_budget", "outgoing", "small")

    def __init__(self, loop_budget: LoopBudget, cipher_bytes: int = LARGE_READ_BYTES) -> None:
        self.loop_budget = loop_budget
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.cipher = memoryview(bytearray(max(cipher_bytes, LARGE_READ_BYTES)))
        self.small = self.cipher[:SMALL_READ_BYTES]
        self._window = self.small
        self._window_for = 0

    def window(self, room: int) -> memoryview:
        """Give a place for ciphertext: never more than fits into `room` decrypted, and little if that is little."""
        if room != self._window_for:
            # Most reads are for as much room as the last one: a slice less for each.
            self._window_for = room
            self._window = self.cipher[: room - RECORD_BYTES] if room - RECORD_BYTES > SMALL_READ_BYTES else self.small
        return self._window


def direct_calls(sealer: ssl.SSLObject) -> tuple[Unseal, Seal]:
    """Give what decrypts into a place (its size or more, the place; gives a count), and what encrypts.

    `ssl.SSLObject` only passes both calls on to an object of C, at a tenth of a microsecond each; where there is no
    such object it does that itself.
    """
    direct: Any = getattr(sealer, "_sslobj", sealer)
    return direct.read, direct.write
