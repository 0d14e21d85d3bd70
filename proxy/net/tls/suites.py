"""TLS versions and cipher suites, by the names of Java and of OpenSSL.

Rule: a name that cannot be used is an error with the configuration key, never ignored: an operator who narrows a list
relies on it. Python's `ssl` cannot choose among the suites of TLS 1.3, so a list names all of them or none; as in Java,
a list without them means no TLS 1.3.
"""

import re
import ssl
from collections.abc import Sequence
from typing import Final

VERSIONS: Final = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
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
    cipher = re.sub(r"^(AES|ARIA|CAMELLIA)_([0-9]+)", r"\1\2", cipher).replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    exchange = "" if exchange == "RSA" else f"{exchange}-"
    return (exchange + cipher).replace("_", "-")


def restrict(
    context: ssl.SSLContext, protocols: Sequence[str], protocols_key: str, ciphers: Sequence[str], ciphers_key: str
) -> None:
    """Limit `context` to these versions and suites; raises BadTlsSetting.

    An empty list leaves the choice to OpenSSL, with TLS 1.2 as the oldest version.
    """
    wanted = []
    for name in protocols:
        version = VERSIONS.get(name.upper())
        if version is None:
            raise BadTlsSetting(protocols_key, repr(name), "TLSv1.3 and TLSv1.2, older versions are not spoken")
        wanted.append(version)
    modern = _choose(context, ciphers, ciphers_key) if ciphers else None
    allowed = {version for version in wanted or VERSIONS.values() if modern is None or _is_modern(version) in modern}
    if not allowed:
        expected = f"a suite of {', '.join(protocols)} ({protocols_key})"
        raise BadTlsSetting(ciphers_key, ",".join(ciphers), expected)
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _is_modern(version: ssl.TLSVersion) -> bool:
    return version is ssl.TLSVersion.TLSv1_3


def _choose(context: ssl.SSLContext, ciphers: Sequence[str], key: str) -> set[bool]:
    """Set the suites of TLS 1.2; return which versions have suites: True for TLS 1.3, False for TLS 1.2."""
    modern = {name for name in ciphers if name.upper() in TLS_1_3_SUITES}
    if modern and len(modern) < len(TLS_1_3_SUITES):
        raise BadTlsSetting(
            key,
            ",".join(sorted(modern)),
            f"all suites of TLS 1.3 ({', '.join(sorted(TLS_1_3_SUITES))}) or none: they cannot be chosen among",
        )
    older = [openssl_name(name) for name in ciphers if name not in modern]
    known = _known_suites()
    for name, given in zip(older, (name for name in ciphers if name not in modern), strict=True):
        if name not in known:
            raise BadTlsSetting(key, repr(given), "names of cipher suites that OpenSSL has, such as " + _EXAMPLES)
    if older:
        context.set_ciphers(":".join(older))
    return {is_modern for is_modern, named in ((True, modern), (False, older)) if named}


def _known_suites() -> frozenset[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    return frozenset(str(suite["name"]) for suite in context.get_ciphers() if suite["protocol"] != "TLSv1.3")


_EXAMPLES: Final = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or ECDHE-RSA-AES128-GCM-SHA256"
