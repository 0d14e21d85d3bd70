"""Load certificate revocation lists (CRLs) into a context, and tell when the first of them expires.

Rule: a list that has expired is a fault when it is loaded. OpenSSL would refuse every certificate of its authority, and
only the log of handshakes would say why. OpenSSL gets the lists and nothing else of a file: it would trust whatever
certificates it finds there as authorities, under any of the names that such a block may have.
"""

import base64
import binascii
import os
import re
import ssl
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from proxy.net.tls.expiry import der_element, der_time
from proxy.net.tls.suites import BadTlsSetting

_BLOCK: Final = re.compile(rb"-----BEGIN ([^\r\n]*?)-----")
_LABEL: Final = b"X509 CRL"
_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----")
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_TIMES: Final = (0x17, 0x18)
_EXPECTED: Final = "a PEM file with certificate revocation lists"


def load_revocation_lists(context: ssl.SSLContext, key: str, path: str, pem: bytes, now: float) -> float | None:
    """Make `context` refuse certificates that are in the lists of `pem`, the contents of the file at `path`.

    Return the Unix time at which the first list expires, None if none ever does; raises BadTlsSetting.
    """
    blocks = _BLOCK.findall(pem)
    if other := next((label for label in blocks if label != _LABEL), None):
        label = other[:40].decode("ascii", "replace")
        raise BadTlsSetting(key, f"{path!r} with a block {label!r}", f"{_EXPECTED} only")
    try:
        lists = [base64.b64decode(found[1], validate=False) for found in _LIST.finditer(pem)]
        if not lists or len(lists) != len(blocks):
            raise BadTlsSetting(key, repr(path), _EXPECTED)
        expiries = list(_expiries(lists))
        _load(context, lists)
    except (ValueError, binascii.Error, ssl.SSLError, OSError) as error:
        raise BadTlsSetting(key, repr(path), _EXPECTED) from error
    first = min((each for each in expiries if each is not None), default=None)
    if first is not None and first <= now:
        ended = datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds")
        raise BadTlsSetting(key, f"{path!r} with a list that expired at {ended}", "lists that are in force")
    # As in other proxies, each authority of a chain needs a list.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return first


def _load(context: ssl.SSLContext, lists: Iterable[bytes]) -> None:
    """Load exactly these lists: Python takes lists from files only, and the file at the path may be another by now."""
    with os.fdopen(os.memfd_create("revocation lists"), "wb") as file:
        for each in lists:
            file.write(b"-----BEGIN X509 CRL-----\n" + base64.encodebytes(each) + b"-----END X509 CRL-----\n")
        file.flush()
        context.load_verify_locations(f"/proc/self/fd/{file.fileno()}")


def _expiries(lists: Iterable[bytes]) -> Iterator[float | None]:
    """Yield the Unix time of `nextUpdate` of each list (RFC 5280, 5.1); None for a list without this field."""
    for each in lists:
        outer, _ = der_element(each, _SEQUENCE)
        rest, _ = der_element(outer, _SEQUENCE)
        if rest[:1] == bytes((_INTEGER,)):
            _, rest = der_element(rest)
        for _ in ("signature", "issuer", "this update"):
            _, rest = der_element(rest)
        yield der_time(rest) if rest[:1] and rest[0] in _TIMES else None
