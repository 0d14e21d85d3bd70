"""TLS versions and cipher suites, by the names of Java and of OpenSSL.

Rule: a name that cannot be used is an error with the configuration key, never ignored: an operator who narrows a list
relies on it. As in Java, a list without a suite of TLS 1.3 means no TLS 1.3.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from proxy.core.native import native

VERSIONS: Final = {"TLSV1.2": 0x0303, "TLSV1.3": 0x0304}
_MODERN: Final = VERSIONS["TLSV1.3"]
_STANDARD_NAME: Final = re.compile(r"TLS_(.+)_WITH_(.+)")


class BadTlsSetting(ValueError):
    """A TLS setting that cannot be used, with its configuration key, the value and what is expected."""

    def __init__(self, key: str, got: str, expected: str) -> None:
        super().__init__(f"{key}: got {got}, expected {expected}")
        self.key = key
        self.got = got
        self.expected = expected


def openssl_name(standard_name: str) -> str:
    """Translate TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 into ECDHE-RSA-AES128-GCM-SHA256; return other names as is."""
    found = _STANDARD_NAME.fullmatch(standard_name)
    if found is None:
        return standard_name
    exchange, cipher = found.groups()
    cipher = re.sub(r"^AES_([0-9]+)", r"AES\1", cipher).replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    return f"{exchange}-{cipher}".replace("_", "-")


@cache
def _suites() -> Mapping[str, int]:
    """Return the numbers of the suites that there are, by all their names."""
    standard = {name.replace("TLS13_", "TLS_"): number for name, number in native().find("TLS_SUITES") or ()}
    return standard | {openssl_name(name): number for name, number in standard.items()}


def is_modern(suite: int) -> bool:
    """Return whether a suite is one of TLS 1.3 (RFC 8446, B.4)."""
    return suite >> 8 == 0x13


def versions_and_suites(
    protocols: Sequence[str], protocols_key: str, ciphers: Sequence[str], ciphers_key: str
) -> tuple[list[int], list[int]]:
    """Return the numbers of the versions and suites that are allowed, no suites for all; raises BadTlsSetting."""
    wanted = []
    for name in protocols:
        version = VERSIONS.get(name.upper())
        if version is None:
            raise BadTlsSetting(protocols_key, repr(name), "TLSv1.3 and TLSv1.2, older versions are not spoken")
        wanted.append(version)
    suites = []
    for name in ciphers:
        number = _suites().get(name.upper())
        if number is None:
            raise BadTlsSetting(ciphers_key, repr(name), f"one of {', '.join(sorted(_names()))}")
        suites.append(number)
    allowed = [version for version in wanted or VERSIONS.values() if not suites or version in _spoken(suites)]
    if not allowed:
        expected = f"a suite of {', '.join(protocols)} ({protocols_key})"
        raise BadTlsSetting(ciphers_key, ",".join(ciphers), expected)
    return allowed, suites


def _names() -> set[str]:
    return {name for name in _suites() if name.startswith("TLS_")}


def _spoken(suites: Sequence[int]) -> set[int]:
    return {_MODERN if is_modern(suite) else VERSIONS["TLSV1.2"] for suite in suites}


def fits(suite: int, kind: str, versions: Sequence[int]) -> bool:
    """Return whether a server with a certificate of this kind, RSA or ECDSA, can use a suite in one of the versions."""
    if is_modern(suite):
        return _MODERN in versions
    return any(number == suite and f"-{kind}-" in name for name, number in _suites().items())


def restrict(context: ssl.SSLContext, versions: Sequence[int], suites: Sequence[int]) -> None:
    """Limit a context for https to these; Python's `ssl` cannot choose among the suites of TLS 1.3."""
    context.minimum_version = ssl.TLSVersion(min(versions))
    context.maximum_version = ssl.TLSVersion(max(versions))
    if older := [number for number in suites if not is_modern(number)]:
        names = {number: name for name, number in _suites().items() if not name.startswith("TLS_")}
        context.set_ciphers(":".join(names[number] for number in older))
