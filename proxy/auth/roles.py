"""Valid roles, and their form in log lines (`authenticationRoleLoggingAnonymizer`), which is upstream's.

Rule: a role goes into log lines, headers and the CONNECT of each broker connection. Text that could break any of these
is never a role, even if a provider has verified it.

A hashed role is no secret, because roles can be guessed. The hash lets an operator follow a role through a log without
reading its name.
"""

import base64
import hashlib
from collections.abc import Callable
from typing import Final

LONGEST_ROLE: Final = 1024

Anonymizer = Callable[[str], str]


def is_role(value: object) -> bool:
    """Return whether a value can be a role: printable text of 1 to 1,024 characters."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_ROLE and value.isprintable()


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
