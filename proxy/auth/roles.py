"""Valid roles, and their form in log lines (`authenticationRoleLoggingAnonymizer`), which is upstream's.

Rule: a role goes into log lines, headers and the CONNECT of each broker connection. Text that could break any of these,
or that one of them would change into another role, is never a role, even if a provider has verified it.

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
    """Return whether a value can be a role: printable text of 1 to 1,024 characters, with no blank at an end."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ROLE:
        return False
    # Servers strip blanks around the value of a header (RFC 9110, 5.5): " admin" would be "admin" for them.
    return value.isprintable() and value == value.strip()


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
