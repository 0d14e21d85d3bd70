"""Own a TLS 1.3 client that seals by hand what OpenSSL never sends of itself: floods of key updates, padding.

Rule: it is made from the secret that the handshake gave (the key log) and seals everything behind the handshake; the
peer's own sealer must send nothing then. RFC 8446, 4.6.3, 5.2, 7.1 to 7.3.
"""

import ssl
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tests.support.auth.tls import client_context

_HANDSHAKE, _DATA = 22, 23
_HASH_BYTES: Final = 48
_KEY_BYTES: Final = 32
_IV_BYTES: Final = 12


def logging_context(directory: Path) -> ssl.SSLContext:
    """Give what a client of TLS 1.3 uses whose secrets `HandSealer.of` finds in `directory`."""
    context = client_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.keylog_filename = str(directory / "keys")
    return context


class HandSealer:
    """Seals a client's records of TLS_AES_256_GCM_SHA384."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._begin()

    @classmethod
    def of(cls, directory: Path, tls: ssl.SSLObject) -> "HandSealer":
        """Take over from `tls`, the last connection whose handshake was done."""
        cipher = tls.cipher()
        assert cipher is not None
        assert cipher[0] == "TLS_AES_256_GCM_SHA384", cipher
        lines = (directory / "keys").read_text().splitlines()
        secrets = [line.split()[2] for line in lines if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")]
        return cls(bytes.fromhex(secrets[-1]))

    def data(self, data: bytes, padding: int = 0) -> bytes:
        """Seal data, or none, in a record with that many bytes of padding."""
        return self.record(data, _DATA, padding)

    def updates(self, count: int, *, requested: bool = True) -> bytes:
        """Seal updates of keys in a row; one that is `requested` asks the other side for one of its own."""
        records = []
        for _ in range(count):
            records.append(self.record(bytes((24, 0, 0, 1, requested)), _HANDSHAKE))
            self._secret = self._derived(b"traffic upd", _HASH_BYTES)
            self._begin()
        return b"".join(records)

    def _begin(self) -> None:
        self._aead = AESGCM(self._derived(b"key", _KEY_BYTES))
        self._iv = int.from_bytes(self._derived(b"iv", _IV_BYTES), "big")
        self._sequence = 0

    def _derived(self, label: bytes, length: int) -> bytes:
        full = b"tls13 " + label
        info = length.to_bytes(2, "big") + bytes((len(full),)) + full + b"\x00"
        return HKDFExpand(SHA384(), length, info).derive(self._secret)

    def record(self, data: bytes, kind: int, padding: int = 0) -> bytes:
        """Seal bytes of any kind."""
        nonce = (self._iv ^ self._sequence).to_bytes(_IV_BYTES, "big")
        self._sequence += 1
        header = b"\x17\x03\x03" + (len(data) + padding + 17).to_bytes(2, "big")
        return header + self._aead.encrypt(nonce, data + bytes((kind,)) + bytes(padding), header)
