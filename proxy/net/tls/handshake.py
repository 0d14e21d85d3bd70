"""The handshake of one TLS connection, up to the moment at which its transport is open.

Rule: the session gets a ClientHello whole or not at all (`hello.py`), and bytes only in a turn of the loop budget,
because a handshake costs milliseconds of processor time. All that a peer sends besides a ClientHello is bounded:
the session decodes and checks a whole chain of certificates in one step. The transport drops this object when the
handshake is done.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from proxy.core.errors import DisconnectCause
from proxy.core.tasks import do_nothing
from proxy.net.tls.failures import TlsFailed, failed
from proxy.net.tls.hello import asks_again, bytes_after, check_first_byte, hello_end, hello_progress
from proxy.net.tls.session import FAILED

if TYPE_CHECKING:
    from proxy.core.native import TlsSession

# Limits of what the session gets in a handshake, a ClientHello apart. A chain of 8 certificates (the JDK's limit for
# clients) with RSA keys of 4,096 bits fits into 16 KiB; real chains have 2 to 4.
CLIENT_HANDSHAKE_BYTES: Final = 16 * 1024
# A broker also sends the names of the authorities that it trusts, some 100 bytes each, 150 of them for a system's.
BROKER_HANDSHAKE_BYTES: Final = 64 * 1024
# Of a host that a client made up, and that no broker has named: the memory budget has this much for each.
STRANGER_HANDSHAKE_BYTES: Final = 20 * 1024
_NO_ROOM: Final = memoryview(bytearray())


class Handshake:
    """The state of a handshake. `received`: ciphertext that the session has not got yet; `stepped`: of a first step.

    `make_protocol` and `on_failure` belong to the caller that waits for the end of the handshake; `on_step` is called
    after each step but the last. `most_bytes`: limit of what the session gets, a ClientHello apart.
    """

    __slots__ = (
        "_first_byte_due",
        "_hello_due",
        "_left",
        "_most_bytes",
        "_needed",
        "_session",
        "make_protocol",
        "on_failure",
        "on_step",
        "received",
        "server_side",
        "stepped",
    )

    def __init__(
        self,
        session: "TlsSession",
        make_protocol: Callable[[], asyncio.BaseProtocol],
        on_failure: Callable[[TlsFailed], None],
        *,
        server_side: bool,
        most_bytes: int,
        on_step: Callable[[], None] = do_nothing,
    ) -> None:
        self._session = session
        self.server_side = server_side
        self.make_protocol = make_protocol
        self.on_failure = on_failure
        self.on_step = on_step
        self.received = b""
        self.stepped = False
        self._first_byte_due = self._hello_due = server_side
        # No more can be said of a ClientHello before `received` has so many bytes.
        self._needed = 0
        # The bytes that the session may still get, a ClientHello apart.
        self._left = self._most_bytes = most_bytes

    def receive(self, cipher: memoryview) -> None:
        """Keep a copy of `cipher` for the next step; raises TlsFailed if a client does not speak TLS."""
        if self._first_byte_due:
            self._first_byte_due = False
            check_first_byte(cipher[0])
        self.received += bytes(cipher)

    def ready(self) -> bool:
        """Return whether a step can be done with `received`; raises TlsFailed for a ClientHello that is too large."""
        if not self._hello_due:
            return bool(self.received)
        if len(self.received) < self._needed:
            return False
        end, self._needed = hello_progress(self.received)
        return end > 0

    def step(self, flush: Callable[[], bytes]) -> bool:
        """Run one step in the session, send its answer with `flush`, and return whether the handshake is done.

        Raises TlsFailed if the peer's part of the handshake is too large.
        """
        received = self.received
        end = hello_end(received) if self._hello_due else min(len(received), self._left)
        if self._hello_due and not end:
            # A read can lead to two turns, and the first turn has already consumed the ClientHello.
            return False
        taken = bytes_after(received[:end]) if self._hello_due else end
        self.received, self._needed = received[end:], 0
        session = self._session
        session.receive(received[:end], _NO_ROOM)
        answer = flush()
        if session.flags & FAILED:
            raise failed(DisconnectCause.TLS_HANDSHAKE_FAILED, session.failure)
        if not session.handshaking:
            self._hello_due = False
            return True
        self._count(taken)
        self._hello_due = self._hello_due and asks_again(answer)
        self.stepped = True
        self.on_step()
        return False

    def _count(self, taken: int) -> None:
        """Count bytes that the session takes without an end of the handshake; raises TlsFailed at the limit."""
        self._left -= taken
        if self._left <= 0:
            peer, most = "client" if self.server_side else "broker", self._most_bytes
            raise TlsFailed(
                DisconnectCause.TLS_HANDSHAKE_FAILED,
                "certificate",
                f"the {peer}'s chain of certificates is refused: its handshake is not done after {most} bytes",
            )
