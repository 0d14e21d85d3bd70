"""Load certificate revocation lists (CRLs) into a context, and tell when the first of them expires.

Rule: a list that has expired is a fault when it is loaded. OpenSSL would refuse every certificate of its authority, and
only the log of handshakes would say why.
"""

import base64
import binascii
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from proxy.net.tls.expiry import der_element, der_time
from proxy.net.tls.suites import BadTlsSetting

_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----")
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_TIMES: Final = (0x17, 0x18)
_EXPECTED: Final = "a PEM file with certificate revocation lists"


def load_revocation_lists(context: ssl.SSLContext, key: str, path: str, pem: bytes, now: float) -> float | None:
    """Make `context` refuse certificates that are in the lists of `pem`, the contents of the file at `path`.

    Return the Unix time at which the first list expires, None if none ever does; raises BadTlsSetting.
    """
    if b"-----BEGIN CERTIFICATE-----" in pem:
        # OpenSSL would trust a certificate in this file as an authority.
        raise BadTlsSetting(key, f"{path!r} with a certificate", f"{_EXPECTED} only")
    try:
        expiries = list(_expiries(pem))
        if not expiries:
            raise BadTlsSetting(key, repr(path), _EXPECTED)
        context.load_verify_locations(path)
    except (ValueError, binascii.Error, ssl.SSLError, OSError) as error:
        raise BadTlsSetting(key, repr(path), _EXPECTED) from error
    first = min((each for each in expiries if each is not None), default=None)
    if first is not None and first <= now:
        ended = datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds")
        raise BadTlsSetting(key, f"{path!r} with a list that expired at {ended}", "lists that are in force")
    # As in other proxies, each authority of a chain needs a list.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    return first


def _expiries(pem: bytes) -> Iterator[float | None]:
    """Yield the Unix time of `nextUpdate` of each list (RFC 5280, 5.1); None for a list without this field."""
    for found in _LIST.finditer(pem):
        outer, _ = der_element(base64.b64decode(found[1], validate=False), _SEQUENCE)
        rest, _ = der_element(outer, _SEQUENCE)
        if rest[:1] == bytes((_INTEGER,)):
            _, rest = der_element(rest)
        for _ in ("signature", "issuer", "this update"):
            _, rest = der_element(rest)
        yield der_time(rest) if rest[:1] and rest[0] in _TIMES else None
