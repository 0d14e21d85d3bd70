"""Hide secrets in values of configuration keys, in log lines about these values, and in error messages.

Rule: the value of a key that is declared secret is hidden entirely. In any other value the parts that look like
credentials are hidden: user and password in a URL, and keys or tokens given inline instead of in a file. The patterns
are applied to the whole value: a part of the value, split at commas, may hold half a password, which no pattern
matches.
"""

import re
from typing import Final

HIDDEN: Final = "(hidden)"
# Up to the last @ before the next URL: a password with an unescaped / or , or @ must be hidden as a whole.
_USER_INFO: Final = re.compile(r"(?<=://)(?:(?!://).)+@", re.DOTALL)
# The same without a scheme in front.
_PAIR: Final = re.compile(r"[^\s:@/,\"]*:(?!//)(?:(?!://)[^\"])*@")
# The prefixes of inline data: `data:;base64,...` for keys, `token:...` for the Java client's plug-in.
_INLINE: Final = re.compile(r"\b(data|token):(?!//)\S+", re.IGNORECASE)
_BEARER: Final = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
# A JSON Web Token; its header is a JSON object, which begins with these letters in base64.
_JWT: Final = re.compile(r"\beyJ[A-Za-z0-9_-]{4,300}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?")
_JSON_SECRET: Final = re.compile(
    r'("[^"]*(?:password|secret|token|privatekey|authorization|api-?key)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE
)
_PASSWORD_KEY: Final = re.compile(r"password|secret|AuthenticationParameters$|\.token$", re.IGNORECASE)


def masked(value: str) -> str:
    """Return the value with the parts hidden that look like credentials."""
    value = _USER_INFO.sub(f"{HIDDEN}@", value)
    value = _PAIR.sub(f"{HIDDEN}@", value)
    value = _JSON_SECRET.sub(rf'\1"{HIDDEN}"', value)
    return without_tokens(value)


def without_tokens(text: str) -> str:
    """Return a text of any origin with the tokens hidden that have the usual form; linear in the text's length."""
    text = _INLINE.sub(rf"\1:{HIDDEN}", text)
    text = _JWT.sub(HIDDEN, text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text)


def shown_of_unknown(key: str, value: str) -> str:
    """Return the shown form of the value of an unknown key; the value is hidden if the key sounds secret."""
    return HIDDEN if value and _PASSWORD_KEY.search(key) else masked(value)
