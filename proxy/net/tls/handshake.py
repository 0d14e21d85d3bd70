"""The handshake of one TLS connection, up to the moment at which its transport is open.

Rule: OpenSSL gets a ClientHello whole or not at all (`hello.py`), and it gets bytes only in a turn of the loop budget,
because a handshake costs milliseconds of processor time. All that a peer sends besides a ClientHello is bounded:
OpenSSL decodes and checks a whole chain of certificates in one step. The transport drops this object when the handshake
is done.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from proxy.core.errors import DisconnectCause
from proxy.core.tasks import do_nothing
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.hello import asks_again, bytes_after, check_first_byte, hello_end, hello_progress
from proxy.net.tls.shared import TlsShared

# Limits of what OpenSSL gets in a handshake, a ClientHello apart. A chain of 8 certificates (the JDK's own limit for
# clients) with RSA keys of 4,096 bits fits into 16 KiB; real chains have 2 to 4. OpenSSL needs 0.2 ms for each.
CLIENT_HANDSHAKE_BYTES: Final = 16 * 1024
# A broker also sends the names of the authorities that it trusts, some 100 bytes each, 150 of them for a system's.
BROKER_HANDSHAKE_BYTES: Final = 64 * 1024


class Handshake:
    """The state of a handshake. `received` is ciphertext that OpenSSL has not got yet, `stepped` tells of a first step.

    `make_protocol` and `on_failure` belong to the caller that waits for the end of the handshake; `on_step` is called
    after each step but the last.
    """

    __slots__ = (
        "_first_byte_due",
        "_hello_due",
        "_left",
        "_needed",
        "_server_side",
        "_shared",
        "_ssl_object",
        "make_protocol",
        "on_failure",
        "on_step",
        "received",
        "stepped",
    )

    def __init__(
        self,
        shared: TlsShared,
        ssl_object: ssl.SSLObject,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        on_failure: Callable[[TlsFailed], None],
        *,
        server_side: bool,
        on_step: Callable[[], None] = do_nothing,
    ) -> None:
        self._shared = shared
        self._ssl_object = ssl_object
        self._server_side = server_side
        self.make_protocol = make_protocol
        self.on_failure = on_failure
        self.on_step = on_step
        self.received = b""
        self.stepped = False
        self._first_byte_due = self._hello_due = server_side
        # No more can be said of a ClientHello before `received` has so many bytes.
        self._needed = 0
        # The bytes that OpenSSL may still get, a ClientHello apart.
        self._left = CLIENT_HANDSHAKE_BYTES if server_side else BROKER_HANDSHAKE_BYTES

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
        """Run one step in OpenSSL, send its answer with `flush`, and return whether the handshake is done.

        Raises TlsFailed if the peer's part of the handshake is too large.
        """
        incoming, received, answer = self._shared.incoming, self.received, b""
        end = hello_end(received) if self._hello_due else min(len(received), self._left)
        if self._hello_due and not end:
            # A read can lead to two turns, and the first turn has already consumed the ClientHello.
            return False
        if self._hello_due:
            self._count(bytes_after(received[:end]))
        incoming.write(received[:end])
        self.received, self._needed = received[end:], 0
        try:
            self._ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            self._hello_due = False
            return True
        finally:
            if incoming.pending:
                self.received = incoming.read() + self.received
            answer = flush()
        if not self._hello_due:
            self._count(len(received) - len(self.received))
        self._hello_due = self._hello_due and asks_again(answer)
        self.stepped = True
        self.on_step()
        return False

    def _count(self, taken: int) -> None:
        """Count bytes that OpenSSL takes without an end of the handshake; raises TlsFailed at the limit."""
        self._left -= taken
        if self._left <= 0:
            peer, most = ("client", CLIENT_HANDSHAKE_BYTES) if self._server_side else ("broker", BROKER_HANDSHAKE_BYTES)
            raise TlsFailed(
                DisconnectCause.TLS_HANDSHAKE_FAILED,
                "certificate",
                f"the {peer}'s chain of certificates is refused: its handshake is not done after {most} bytes",
            )
