"""The writing half of a TLS transport: plaintext is encrypted at once and never kept. Also what a transport tells."""

import asyncio
import ssl
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from proxy.core.errors import DisconnectCause
from proxy.net.tls.failures import TlsFailed, describe
from proxy.net.tls.shared import Encrypt, TlsShared

# Ciphertext is read out of the BIO after this much plaintext: a BIO never shrinks below its largest size so far.
ENCRYPTED_AT_ONCE_BYTES: Final = 64 * 1024


class TlsPhase(Enum):
    """The part of its life that a TLS connection is in."""

    HANDSHAKE = 1
    OPEN = 2
    CLOSING = 3


# Every read and write compares with this: a global is found faster than a member of an enumeration.
OPEN: Final = TlsPhase.OPEN


class SealedWrites(asyncio.Transport):
    """Writes to the plain transport `_raw` what `_encrypt` leaves in the BIO of the loop."""

    __slots__ = ("_encrypt", "_failure", "_phase", "_raw", "_shared", "_ssl_object")

    _encrypt: Encrypt
    _failure: TlsFailed | None
    _phase: TlsPhase
    _raw: asyncio.Transport | None
    _shared: TlsShared
    _ssl_object: ssl.SSLObject

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt `data` and write it, or do nothing if the connection is closing."""
        raw = self._raw
        if len(data) > ENCRYPTED_AT_ONCE_BYTES or not data:
            self.writelines((data,))
        elif self._phase is OPEN and raw is not None:
            try:
                self._encrypt(data)
            except ssl.SSLError as error:
                self._encryption_failed(error)
                return
            raw.write(self._shared.outgoing.read())

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt several pieces and write them with one call; keep no reference to them."""
        if self._phase is not OPEN or self._raw is None:
            return
        outgoing, encrypt, records = self._shared.outgoing, self._encrypt, []
        try:
            for piece in list_of_data:
                if len(piece) > ENCRYPTED_AT_ONCE_BYTES:
                    view = memoryview(piece)
                    for start in range(0, len(view), ENCRYPTED_AT_ONCE_BYTES):
                        encrypt(view[start : start + ENCRYPTED_AT_ONCE_BYTES])
                        records.append(outgoing.read())
                elif piece:
                    encrypt(piece)
                    if outgoing.pending >= ENCRYPTED_AT_ONCE_BYTES:
                        records.append(outgoing.read())
        except ssl.SSLError as error:
            self._encryption_failed(error)
            return
        if outgoing.pending:
            records.append(outgoing.read())
        if len(records) == 1:
            self._raw.write(records[0])
        elif records:
            self._raw.writelines(records)

    def _encryption_failed(self, error: ssl.SSLError) -> None:
        self._shared.outgoing.read()
        self._failure = TlsFailed(DisconnectCause.TLS_ERROR, "broken", describe(error))
        self.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the plain transport, which count ciphertext."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the bytes of ciphertext in user space: the plaintext of a write is never kept."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Return False: few peers go on sending after they got close_notify."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `ssl_object`, `sslcontext`, `peer_certificate` (DER or None), or what the plain transport knows."""
        if name == "ssl_object":
            return self._ssl_object
        if name == "sslcontext":
            return self._ssl_object.context
        if name == "peer_certificate":
            return self._ssl_object.getpeercert(binary_form=True)
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Return whether writes are ignored, because the connection closes or has failed."""
        return self._phase is TlsPhase.CLOSING
