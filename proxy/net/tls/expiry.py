"""Read the few fields of a certificate that are needed: its names, its key, its times (RFC 5280, section 4.1).

A library for certificates costs 10 MiB and 50 ms at the start; Python's `ssl` reads certificates of peers only.
"""

from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_RSA: Final = bytes.fromhex("06092a864886f70d010101")
# P-256, P-384, P-521, Ed25519.
_CURVES: Final = tuple(
    map(bytes.fromhex, ("06072a8648ce3d020106082a8648ce3d030107", "06072a8648ce3d020106052b81040022",
                        "06072a8648ce3d020106052b81040023", "06032b6570"))
)  # fmt: skip


def validity(der: bytes) -> tuple[float, float]:
    """Return the Unix times between which a certificate is valid; raises ValueError if it is none."""
    _, times, _, _ = _fields(der)
    _, after = der_element(times)
    return der_time(times), der_time(after)


def has_expired(der: bytes, now: float) -> bool:
    """Return whether a certificate has expired at the Unix time `now`; False for what is no certificate."""
    try:
        return validity(der)[1] <= now
    except ValueError:
        return False


def issuer_and_subject(der: bytes) -> tuple[bytes, bytes]:
    """Return both names of a certificate; raises ValueError if it is none."""
    issuer, _, subject, _ = _fields(der)
    return issuer, subject


def rsa_bits(der: bytes) -> int:
    """Return the size of a certificate's RSA key; 0 for another key, and for what is no certificate."""
    try:
        algorithm, rest = der_element(_fields(der)[3], _SEQUENCE)
        if not algorithm.startswith(_RSA):
            return 0
        bits, _ = der_element(rest)
        numbers, _ = der_element(bits[1:], _SEQUENCE)
        modulus, _ = der_element(numbers)
    except ValueError:
        return 0
    return int.from_bytes(modulus, "big").bit_length()


def has_known_key(der: bytes) -> bool:
    """Return whether sessions know the kind of a certificate's key; True for what is no certificate."""
    try:
        algorithm, _ = der_element(_fields(der)[3], _SEQUENCE)
    except ValueError:
        return True
    return algorithm.startswith(_RSA) or algorithm in _CURVES


def _fields(der: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    certificate, _ = der_element(der, _SEQUENCE)
    rest, _ = der_element(certificate, _SEQUENCE)
    if rest[:1] == bytes((_VERSION,)):
        _, rest = der_element(rest)
    for _ in ("serial number", "signature"):
        _, rest = der_element(rest)
    issuer, rest = der_element(rest, _SEQUENCE)
    validity, rest = der_element(rest, _SEQUENCE)
    subject, rest = der_element(rest, _SEQUENCE)
    key, _ = der_element(rest, _SEQUENCE)
    return issuer, validity, subject, key


def der_element(data: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Split DER data into the contents of the first element and the bytes after it."""
    if len(data) < 2 or (tag is not None and data[0] != tag):
        raise ValueError("no X.509 certificate")
    size, start = data[1], 2
    if size >= 0x80:
        start += size & 0x7F
        size = int.from_bytes(data[2:start], "big")
    if start + size > len(data):
        raise ValueError("a certificate that is cut short")
    return data[start : start + size], data[start + size :]


def der_time(data: bytes) -> float:
    """Return the Unix time of the DER element at the beginning of `data`; raises ValueError."""
    contents, _ = der_element(data)
    text = contents.decode("ascii", "replace")
    if data[0] == _UTC_TIME:
        # The year has two digits: from 50 on it is 19xx (RFC 5280, 4.1.2.5.1).
        text = ("19" if text[:2] >= "50" else "20") + text
    elif data[0] != _GENERALIZED_TIME:
        raise ValueError("a certificate without dates")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
