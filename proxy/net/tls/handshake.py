"""The handshake of one TLS connection, up to the moment at which its transport is open.

Rule: OpenSSL gets a ClientHello whole or not at all (`hello.py`), and it gets bytes only in a turn of the loop budget,
because a handshake costs milliseconds of processor time. The transport drops this object when the handshake is done.
"""

import asyncio
import ssl
from collections.abc import Callable

from proxy.core.tasks import do_nothing
from proxy.net.tls.failures import TlsFailed
from proxy.net.tls.hello import asks_again, check_first_byte, hello_end
from proxy.net.tls.shared import TlsShared


class Handshake:
    """The state of a handshake. `received` is ciphertext that OpenSSL has not got yet, `stepped` tells of a first step.

    `make_protocol` and `on_failure` belong to the caller that waits for the end of the handshake; `on_step` is called
    after each step but the last.
    """

    __slots__ = (
        "_first_byte_due",
        "_hello_due",
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
        self.make_protocol = make_protocol
        self.on_failure = on_failure
        self.on_step = on_step
        self.received = b""
        self.stepped = False
        self._first_byte_due = self._hello_due = server_side

    def receive(self, cipher: memoryview) -> None:
        """Keep a copy of `cipher` for the next step; raises TlsFailed if a client does not speak TLS."""
        if self._first_byte_due:
            self._first_byte_due = False
            check_first_byte(cipher[0])
        self.received += bytes(cipher)

    def ready(self) -> bool:
        """Return whether a step can be done with `received`; raises TlsFailed for a ClientHello that is too large."""
        return hello_end(self.received) > 0 if self._hello_due else bool(self.received)

    def step(self, flush: Callable[[], bytes]) -> bool:
        """Run one step in OpenSSL, send its answer with `flush`, and return whether the handshake is done."""
        incoming, received, answer = self._shared.incoming, self.received, b""
        end = hello_end(received) if self._hello_due else len(received)
        if self._hello_due and not end:
            # A read can lead to two turns, and the first turn has already consumed the ClientHello.
            return False
        incoming.write(received[:end])
        self.received = received[end:]
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
        self._hello_due = self._hello_due and asks_again(answer)
        self.stepped = True
        self.on_step()
        return False
