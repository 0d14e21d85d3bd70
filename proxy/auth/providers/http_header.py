"""Credentials of HTTP clients in the Authorization header (RFC 6750, RFC 7617).

Rule: a malformed header counts as no credentials and is no error of its own: the caller answers 401 either way.
"""

import base64
import binascii
from typing import Final

from proxy.auth.identity import MAX_AUTH_DATA_BYTES, TOKEN, AuthData

LONGEST_HEADER: Final = MAX_AUTH_DATA_BYTES + len("Bearer ")
_WHITE_SPACE: Final = " \t\n\r\f\v"


def credentials_of_header(value: str) -> AuthData | None:
    """Parse `Bearer <token>` or `Basic <base64>` into the data that CONNECT would carry; None for any other form."""
    scheme, _, rest = value.partition(" ")
    rest = rest.strip(" ")
    if len(value) > LONGEST_HEADER or not rest or not rest.isascii():
        return None
    if scheme.lower() == "bearer":
        found = AuthData.presented(TOKEN, rest.encode())
        return found if found.data else None
    if scheme.lower() != "basic":
        return None
    try:
        return AuthData("basic", base64.b64decode(rest, validate=True))
    except (binascii.Error, ValueError):
        return None


def spelt_once(value: str) -> str:
    """Return a header for a server, `Bearer` with its token as it was checked: without the white space around it."""
    scheme, blank, rest = value.partition(" ")
    return f"{scheme} {rest.strip(_WHITE_SPACE)}" if blank and scheme.lower() == "bearer" else value
