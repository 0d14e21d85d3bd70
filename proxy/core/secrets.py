"""Hide secrets in what people and machines are shown: values of keys, log lines about them, error messages.

Rule: a key that is declared secret is hidden whole; in any other value what looks like a credential is hidden: user
and password in a URL, and keys or tokens that are given in the value itself instead of a file. What is hidden is found
in the whole value: its parts, split at commas, may each hold half a password that no pattern knows.
"""

import re
from typing import Final

HIDDEN: Final = "(hidden)"
# Up to the last @ before the next URL: whoever mistyped a password with / or , or @ in it has not made it public.
_USER_INFO: Final = re.compile(r"(?<=://)(?:(?!://).)+@", re.DOTALL)
# The same without a scheme in front.
_PAIR: Final = re.compile(r"[^\s:@/,\"]*:(?!//)(?:(?!://)[^\"])*@")
# What may stand in front of inline data: `data:;base64,...` for keys, `token:...` for the Java client's plug-in.
_INLINE: Final = re.compile(r"\b(data|token):(?!//)\S+", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
_JSON_SECRET: Final = re.compile(
    r'("[^"]*(?:password|secret|token|privatekey|authorization|api-?key)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE
)
_PASSWORD_KEY: Final = re.compile(r"password|secret|AuthenticationParameters$|\.token$", re.IGNORECASE)


def masked(value: str) -> str:
    """Hide what looks like a credential in a value that may be shown otherwise."""
    value = _USER_INFO.sub(f"{HIDDEN}@", value)
    value = _PAIR.sub(f"{HIDDEN}@", value)
    value = _JSON_SECRET.sub(rf'\1"{HIDDEN}"', value)
    value = _INLINE.sub(rf"\1:{HIDDEN}", value)
    return _BEARER.sub(rf"\1 {HIDDEN}", value)


def shown_of_unknown(key: str, value: str) -> str:
    """Write the value of a key that this proxy does not have: hidden if its name says so."""
    return HIDDEN if value and _PASSWORD_KEY.search(key) else masked(value)
