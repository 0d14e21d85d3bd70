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


# By the value of the key, in lower case.
ANONYMIZERS: Final[dict[str, Anonymizer]] = {
    "none": str,
    "redacted": lambda _: "[REDACTED]",
    "hash:sha256": _hashed("SHA-256:", "sha256"),
    "hash:md5": _hashed("MD5:", "md5"),
}
