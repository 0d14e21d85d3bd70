"""Read PEM files: certificates, keys and revocation lists as DER, whatever stands around their blocks."""

import base64
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Final

from proxy.core.files import read_regular
from proxy.net.tls.expiry import der_element
from proxy.net.tls.suites import BadTlsSetting

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", re.DOTALL)
_HEADER: Final = re.compile(rb"^[\w-]+:.*\n", re.MULTILINE)
CERTIFICATES: Final = frozenset({b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"})
KEYS: Final = frozenset({b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"})
ENCRYPTED: Final = b"ENCRYPTED"
LISTS: Final = frozenset({b"X509 CRL"})


@dataclass(frozen=True, slots=True)
class TlsFile:
    """A file, and the configuration key that names it."""

    key: str
    path: str
    expected: ClassVar[str] = "a file"

    def read(self) -> bytes:
        """Return the contents; raises BadTlsSetting."""
        if not self.path:
            raise BadTlsSetting(self.key, "nothing", self.expected)
        try:
            return read_regular(self.path)
        except OSError as error:
            raise self.fault(f"{self.expected} that can be read: {(error.strerror or str(error)).lower()}") from error

    def fault(self, expected: str) -> BadTlsSetting:
        """Return what is wrong with the file."""
        return BadTlsSetting(self.key, repr(self.path), expected)


@dataclass(frozen=True, slots=True)
class PemFile(TlsFile):
    """A PEM file. All methods raise BadTlsSetting."""

    expected: ClassVar[str] = "a PEM file"

    def certificates(self) -> list[bytes]:
        """Return the certificates, in the order of the file."""
        try:
            # OpenSSL's own form has more behind the certificate.
            found = [der[: len(der) - len(der_element(der)[1])] for der in of_kind(self.read(), CERTIFICATES)]
        except BadTlsSetting:
            raise
        except ValueError as error:
            raise self.fault(f"a PEM file with certificates: {error}") from error
        if not found:
            raise self.fault("a PEM file with certificates")
        return found

    def authorities(self) -> list[bytes]:
        """Return the certificates that are trusted."""
        return self.certificates()

    def private_key(self) -> tuple[bytes, int]:
        """Return the first key, and how many there are."""
        pem = self.read()
        if is_encrypted(pem):
            decrypts = f"`openssl pkey -in {shlex.quote(self.path)} -out NEW` decrypts it"
            raise self.fault(f"a key that is not encrypted; {decrypts}")
        try:
            found = of_kind(pem, KEYS)
        except ValueError as error:
            raise self.fault(f"a PEM file with a private key: {error}") from error
        if not found:
            raise self.fault("a PEM file with a private key")
        return found[0], len(found)


def blocks(pem: bytes) -> list[tuple[bytes, bytes]]:
    """Return the label of each block and its DER; raises ValueError for what is no base64."""
    found = _BLOCK.findall(pem)
    if pem.count(b"-----BEGIN ") > len(found):
        raise ValueError("a block is cut short")
    return [(label, base64.b64decode(b"".join(_HEADER.sub(b"", body).split()), validate=True)) for label, body in found]


def of_kind(pem: bytes, labels: frozenset[bytes]) -> list[bytes]:
    """Return the DER of the blocks with one of these labels, in the order of the file; raises ValueError."""
    return [der for label, der in blocks(pem) if label in labels]


def is_encrypted(pem: bytes) -> bool:
    """Return whether a key in the file needs a password: a label or, in older files, a header says so."""
    return any(ENCRYPTED in label or b"Proc-Type: 4,ENCRYPTED" in body for label, body in _BLOCK.findall(pem))


def block(label: bytes, der: bytes) -> bytes:
    """Return a block of a PEM file."""
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, base64.encodebytes(der), label)


def key_block(der: bytes) -> bytes:
    """Return the block of a key, with the label of its form: what follows the version tells them apart."""
    inside, _ = der_element(der)
    _, rest = der_element(inside)
    return block({0x02: b"RSA PRIVATE KEY", 0x04: b"EC PRIVATE KEY"}.get(rest[0], b"PRIVATE KEY"), der)


@contextmanager
def memory_file(contents: bytes) -> Iterator[str]:
    """Yield the path of a file that is on no disk: Python's `ssl` takes keys and revocation lists from files only."""
    with os.fdopen(os.memfd_create("tls"), "wb") as file:
        file.write(contents)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
