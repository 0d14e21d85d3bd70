"""Read certificate revocation lists (CRLs), and tell when the first of them expires.

Rule: a list that has expired is a fault when it is loaded: it would refuse every certificate of its authority, and only
the log of handshakes would say why. So is the list of a second authority with the same name, for the same reason.
"""

import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Final

from proxy.net.tls.expiry import der_element, der_time
from proxy.net.tls.pem import LISTS, block, blocks, memory_file
from proxy.net.tls.suites import BadTlsSetting

_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_TIMES: Final = (b"\x17", b"\x18")
_EXTENSIONS: Final = b"\xa0"
_EXPECTED: Final = "a PEM file with certificate revocation lists"


def revocation_lists(key: str, path: str, pem: bytes, roots: Sequence[bytes], now: float) -> tuple[list[bytes], float]:
    """Return the lists of `pem`, the contents of the file at `path`, in DER, and when the first expires.

    `roots` are the trusted authorities. Raises BadTlsSetting.
    """
    try:
        found = blocks(pem)
        if other := next((label for label, _ in found if label not in LISTS), None):
            raise BadTlsSetting(key, f"{path!r} with a block {other.decode()!r}", f"{_EXPECTED} only")
        lists = [der for _, der in found]
        if not lists:
            raise BadTlsSetting(key, repr(path), _EXPECTED)
        read = [each for der in lists if (each := _times_and_issuer(der))]
    except BadTlsSetting:
        raise
    except ValueError as error:
        raise BadTlsSetting(key, repr(path), _EXPECTED) from error
    if len(read) < len(lists):
        expected = "lists of version 2 (`openssl ca -gencrl -crlexts crl_ext`, with `crlNumber` in that section)"
        raise BadTlsSetting(key, f"{path!r} with a list of version 1, or without an end", expected)
    first = min(ends for _, ends, _ in read)
    if first <= now:
        ended = datetime.fromtimestamp(first, UTC).isoformat(timespec="seconds")
        raise BadTlsSetting(key, f"{path!r} with a list that expired at {ended}", "lists that are in force")
    # Sessions look into the first list of an authority: the newest, and of equals the one that was added last.
    newest = [der for *_, der in sorted(zip(read, count(), lists, strict=False), reverse=True)]
    if len({issuer for *_, issuer in read}) < len(lists):
        from proxy.net.tls.signers import name_of_two

        if (name := name_of_two(newest, roots)) is not None:
            expected = "lists of one key for each name: rename an authority, or leave out the list that nobody needs"
            raise BadTlsSetting(key, f"{path!r} with lists of {name!r} that two keys have signed", expected)
    return newest, first


def load_lists(context: ssl.SSLContext, lists: Iterable[bytes]) -> None:
    """Make a context for https refuse what is in these lists."""
    with memory_file(b"".join(block(b"X509 CRL", each) for each in lists)) as path:
        context.load_verify_locations(path)
    # As in other proxies, each authority of a chain needs a list.
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN


def _times_and_issuer(der: bytes) -> tuple[float, float, bytes] | None:
    """Return `thisUpdate`, `nextUpdate` and issuer of a list (RFC 5280, 5.1); None for one that is not taken.

    Sessions take those of the RFC: of version 2, with both fields and with extensions.
    """
    outer, _ = der_element(der, _SEQUENCE)
    rest, _ = der_element(outer, _SEQUENCE)
    if rest[:1] != bytes((_INTEGER,)):
        return None
    for _ in ("version", "signature"):
        _, rest = der_element(rest)
    issuer, rest = der_element(rest)
    began = der_time(rest)
    _, rest = der_element(rest)
    if rest[:1] not in _TIMES:
        return None
    ends = der_time(rest)
    while rest and rest[:1] != _EXTENSIONS:
        _, rest = der_element(rest)
    return (began, ends, issuer) if rest else None
