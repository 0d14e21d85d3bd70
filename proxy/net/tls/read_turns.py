"""When a TLS transport reads: its turns of the loop, and how much traffic without data it bears.

A peer can keep OpenSSL busy without sending data: a key update of TLS 1.3 is 27 bytes, costs as much time as a small
request, and asks for no answer. So ciphertext is held against the data that it brought, and a busy connection is read
in its turn (docs/adr/0024).
"""

import asyncio
from typing import Final

from proxy.net.tls.failures import idle_talk
from proxy.net.tls.sealed_writes import OPEN, SealedWrites
from proxy.net.tls.shared import RECORD_BYTES
from proxy.net.transport import SMALL_READ_BYTES

# Limit of ciphertext that no data has paid for: an incomplete record, and a broker's session tickets.
NO_DATA_BYTES: Final = RECORD_BYTES + 16 * 1024
# Data pay for twice their bytes, and each record with data for so many more: what surrounds the data of a record takes
# 85 bytes at most in the ciphers of TLS 1.2, and 22 in those of TLS 1.3 without padding.
RECORD_PAYS_BYTES: Final = 256
# Smaller reads are decrypted at once: 19 key updates at most.
COSTLY_READ_BYTES: Final = 512
# A read with little data that takes longer was full of tiny records; the next reads, so many, are small then.
SLOW_SECONDS: Final = 0.0002
SLOW_READS: Final = 16
# A small read that is decrypted in the budget's time.
READ_SECONDS: Final = 0.00005
# Limit of OpenSSL's own replies in the life of a connection: 2,400 key updates (27 bytes each). Honest peers update
# keys every 2^24 records or 2^37 bytes; each update costs as much processor time as a small request.
OWN_REPLIES_BYTES: Final = 64 * 1024


class ReadTurns(SealedWrites):
    """The reasons for which the plain transport `_raw` is not read: the endpoint's wish, replies, a turn."""

    __slots__ = (
        "_held",
        "_idle_bytes",
        "_paused",
        "_replied_bytes",
        "_replying",
        "_resting",
        "_slow_reads",
        "_stalled",
    )

    def __init__(self) -> None:
        super().__init__()
        # Ciphertext that was read and is not decrypted: at most one small read.
        self._held = b""
        self._paused = False
        self._stalled = False
        # Stop reading until OpenSSL's own replies (key updates) are sent, so a peer cannot make us queue more.
        self._replying = False
        self._replied_bytes = 0
        # Ciphertext of the connection's life that brought no data, less what data have paid for; never negative.
        self._idle_bytes = 0
        # Stop reading until this connection's next turn of the loop budget.
        self._resting = False
        # The next so many reads are small: those before took long.
        self._slow_reads = 0

    def _deliver(self) -> int:
        """Decrypt what was read, pass it on, and return the bytes of data."""
        raise NotImplementedError

    def _continue_reading(self) -> None:
        """Pass on what was read already, then read, if nothing is against it."""
        raise NotImplementedError

    def _deliver_in_turn(self, nbytes: int) -> None:
        """Deliver a read that may take long, in the loop budget's time; rest if there is more, or if the read was slow.

        A read of 4 KiB may hold 150 key updates, some 10 us each. Bulk reads of a relay are not left to a later turn:
        that would cost a copy of each.
        """
        shared, budget = self._shared, self._shared.reads
        little = self._slow_reads > 0 or shared.room <= SMALL_READ_BYTES
        if little and budget.spent():
            self._held = shared.incoming.read()
            self._rest()
            return
        began = budget.now()
        data = self._deliver()
        if nbytes - 2 * data > COSTLY_READ_BYTES and budget.now() - began > SLOW_SECONDS:
            self._slow_reads = SLOW_READS
            self._rest()
        elif little:
            self._slow_reads = max(0, self._slow_reads - 1)
            if nbytes >= SMALL_READ_BYTES:
                self._rest()

    def _rest(self) -> None:
        """Read no more until this connection's next turn: libuv reads a busy socket up to 32 times an iteration."""
        if not self._resting and self._raw is not None and self._phase is OPEN:
            self._resting = True
            self._raw.pause_reading()
            self._shared.reads.defer_cheap(self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._raw is not None and not self._paused:
            self._shared.reads.charge(READ_SECONDS)
        self._continue_reading()

    def _count_idle(self, fed: int, data: int, records: int) -> None:
        """Count ciphertext against the data that it brought.

        A key update costs as much time as a small request, and needs no answer.
        """
        idle = self._idle_bytes + fed - 2 * data - RECORD_PAYS_BYTES * records
        self._idle_bytes = max(0, idle)
        if idle > NO_DATA_BYTES and self._failure is None:
            self._failure = idle_talk(f"{idle} bytes more than its data explain, expected at most {NO_DATA_BYTES}")

    def _await_replies(self, count: int) -> None:
        """Stop reading until OpenSSL's own replies have left, at least until the next turn of the loop."""
        self._replied_bytes += count
        if self._replied_bytes > OWN_REPLIES_BYTES and self._failure is None:
            self._failure = idle_talk(f"{self._replied_bytes} bytes of answers, expected at most {OWN_REPLIES_BYTES}")
        elif not self._replying and self._raw is not None:
            self._replying = True
            self._raw.pause_reading()
            if not self._stalled:
                asyncio.get_running_loop().call_soon(self._replies_left)

    def _replies_left(self) -> None:
        if self._replying and not self._stalled:
            self._replying = False
            self._continue_reading()

    def _resume_raw(self) -> None:
        # uvloop raises for a transport that was reset but has not called `connection_lost` yet.
        if self._raw is not None and not (self._replying or self._resting) and not self._raw.is_closing():
            self._raw.resume_reading()
