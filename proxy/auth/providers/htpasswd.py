"""A file of users and hashed passwords as Apache's `htpasswd` writes it.

Rule: a line of an unknown form is a fault of the file, and plain text is no hash. Hashes that only slow Python code
could check (SHA-crypt, 0.3 s with the interpreter lock held) are refused: bcrypt is as strong and releases the lock.
Upstream checks apr1 and DES only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.auth.roles import is_role

LONGEST_PASSWORD_BYTES: Final = 1024
DEAREST_BCRYPT: Final = 16
BCRYPT_BYTES: Final = 72
EXPECTED: Final = "expected user:hash, a hash of htpasswd (-B bcrypt, -m apr1, -s SHA, -d DES)"

# The name in passlib.hash, and the form of the hash.
_KINDS: Final = {
    "apr_md5_crypt": re.compile(r"\$apr1\$[./0-9A-Za-z]{0,8}\$[./0-9A-Za-z]{22}"),
    "md5_crypt": re.compile(r"\$1\$[./0-9A-Za-z]{0,8}\$[./0-9A-Za-z]{22}"),
    "bcrypt": re.compile(r"\$2[aby]\$([0-9]{2})\$[./0-9A-Za-z]{53}"),
    "ldap_sha1": re.compile(r"\{SHA\}[+/0-9A-Za-z]{27}="),
    "des_crypt": re.compile(r"[./0-9A-Za-z]{13}"),
}


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The hash of a user's password, and the name of its kind."""

    kind: str
    text: str = field(repr=False)

    @property
    def cost(self) -> str:
        """The kind and its setting: checks of hashes with the same cost take the same time."""
        return f"{self.kind}:{self.text[4:6]}" if self.kind == "bcrypt" else self.kind

    def matches(self, password: bytes) -> bool:
        """Return whether the password is right; never call on the event loop: 0.5 ms (apr1) to seconds (bcrypt)."""
        import passlib.hash

        if self.kind == "bcrypt":
            # bcrypt takes no more bytes, and htpasswd cuts a longer password silently.
            password = password[:BCRYPT_BYTES]
        try:
            return bool(getattr(passlib.hash, self.kind).verify(password, self.text))
        except (ValueError, TypeError):
            # passlib raises for some passwords, such as one with a NUL character.
            return False


def read_htpasswd(content: bytes) -> Mapping[str, PasswordHash]:
    """Return all users; blank lines and comments are skipped. Raise ValueError that names the line."""
    users: dict[str, PasswordHash] = {}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError("expected UTF-8 text") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, rest = line.strip().partition(":")
        found = _hash_of(rest)
        if not is_role(user) or found is None:
            raise ValueError(f"line {number}: {EXPECTED}")
        users[user] = found
    if not users:
        raise ValueError("expected at least one line user:hash")
    return users


def _hash_of(text: str) -> PasswordHash | None:
    for kind, form in _KINDS.items():
        if found := form.fullmatch(text):
            if kind == "bcrypt" and not 4 <= int(found[1]) <= DEAREST_BCRYPT:
                return None
            return PasswordHash(kind, text)
    return None
