"""The hash by which a client and a broker find that a topic list has not changed (PIP-145).

The digits must equal those of the Java classes: names in the order of Java strings, joined by commas, CRC32C over the
UTF-8 bytes, four bytes little-endian in hexadecimal. The CRC here is plain Python, good for tests and short lists (some
10 MB/s); for long lists pass a faster `crc32c`.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

Crc32c = Callable[[bytes], int]

# The Castagnoli polynomial, lowest bit first (the CRC of RFC 3720, section 12.1).
_POLYNOMIAL: Final = 0x82F6_3B78
_ALL_ONES: Final = 0xFFFF_FFFF


def topics_hash(topics: Iterable[str], crc32c: Crc32c | None = None) -> str:
    """Return the eight hexadecimal digits for a list of names in any order."""
    joined = ",".join(java_order(topics)).encode()
    checksum = (crc32c or crc32c_of)(joined)
    return checksum.to_bytes(4, "little").hex()


def java_order(topics: Iterable[str]) -> list[str]:
    """Return names sorted as Java sorts strings: by UTF-16 code units.

    Python compares code points and puts U+FF21 before U+1F600; Java compares the surrogate U+D83D instead.
    """
    names = list(topics)
    if all(map(str.isascii, names)):
        names.sort()
    else:
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return names


def crc32c_of(data: bytes) -> int:
    """Return the CRC32C (Castagnoli) of some bytes."""
    table = _table()
    checksum = _ALL_ONES
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ _ALL_ONES


@cache
def _table() -> tuple[int, ...]:
    return tuple(_remainder(byte) for byte in range(256))


def _remainder(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value
