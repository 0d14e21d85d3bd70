"""Credentials of HTTP clients in the Authorization header (RFC 6750, RFC 7617).

Rule: a malformed header counts as no credentials and is no error of its own: the caller answers 401 either way.
"""

import base64
import binascii
from typing import Final

from proxy.auth.identity import AuthData
from proxy.auth.providers.signed_token import LONGEST_TOKEN_BYTES

LONGEST_HEADER: Final = LONGEST_TOKEN_BYTES + len("Bearer ")


def credentials_of_header(value: str) -> AuthData | None:
    """Parse `Bearer <token>` or `Basic <base64>` into the data that CONNECT would carry; None for any other form."""
    scheme, _, rest = value.partition(" ")
    rest = rest.strip(" ")
    if len(value) > LONGEST_HEADER or not rest or not rest.isascii():
        return None
    if scheme.lower() == "bearer":
        return AuthData("token", rest.encode())
    if scheme.lower() != "basic":
        return None
    try:
        return AuthData("basic", base64.b64decode(rest, validate=True))
    except (binascii.Error, ValueError):
        return None
