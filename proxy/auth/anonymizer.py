"""How roles are written in log lines (`authenticationRoleLoggingAnonymizer`), in the very form that upstream writes.

A hash is no secret: roles can be guessed. It lets one follow a role through a log without reading its name.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Final

Anonymizer = Callable[[str], str]


def _hashed(prefix: str, algorithm: str) -> Anonymizer:
    def anonymize(role: str) -> str:
        digest = hashlib.new(algorithm, role.encode(), usedforsecurity=False).digest()
        return prefix + base64.b64encode(digest).decode()

    return anonymize


_SHA256: Final = _hashed("SHA-256:", "sha256")
_MD5: Final = _hashed("MD5:", "md5")

# Upstream takes the two digests without "hash:" as well.
ANONYMIZERS: Final[dict[str, Anonymizer]] = {
    "NONE": str,
    "REDACTED": lambda _: "[REDACTED]",
    "hash:SHA256": _SHA256,
    "hash:MD5": _MD5,
    "SHA256": _SHA256,
    "MD5": _MD5,
}
