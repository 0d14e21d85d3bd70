"""Read PEM files: certificates, keys and revocation lists as DER, whatever stands around their blocks."""

import base64
import re
from typing import Final

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----(.*?)-----END \1-----", re.DOTALL)
_HEADER: Final = re.compile(rb"^[\w-]+:.*\n", re.MULTILINE)
CERTIFICATES: Final = frozenset({b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"})
KEYS: Final = frozenset({b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"})
ENCRYPTED: Final = b"ENCRYPTED"
LISTS: Final = frozenset({b"X509 CRL"})


def blocks(pem: bytes) -> list[tuple[bytes, bytes]]:
    """Return the label of each block and its DER; raises ValueError for what is no base64."""
    return [(label, base64.b64decode(b"".join(body.split()), validate=True)) for label, body in _bodies(pem)]


def of_kind(pem: bytes, labels: frozenset[bytes]) -> list[bytes]:
    """Return the DER of the blocks with one of these labels, in the order of the file; raises ValueError."""
    return [der for label, der in blocks(pem) if label in labels]


def is_encrypted(pem: bytes) -> bool:
    """Return whether a key in the file needs a password: a label or, in older files, a header says so."""
    return any(ENCRYPTED in label or b"Proc-Type: 4,ENCRYPTED" in body for label, body in _BLOCK.findall(pem))


def _bodies(pem: bytes) -> list[tuple[bytes, bytes]]:
    return [(label, _HEADER.sub(b"", body)) for label, body in _BLOCK.findall(pem)]
