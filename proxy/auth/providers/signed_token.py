"""JSON Web Tokens in compact form, and checks of their claims (RFC 7515, RFC 7519).

Rule: a token has exactly one spelling. Base64 that a tolerant reader would also accept (padding, other letters, spare
bits) is refused, so every change makes a valid token invalid. This module does not check signatures: the claims are
unproven until a key has verified them. No clock: the caller passes the time.
"""

import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import orjson

from proxy.auth.identity import MAX_AUTH_DATA_BYTES
from proxy.auth.roles import is_role

LONGEST_KEY_ID: Final = 512
_COMPACT: Final = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
# A date beyond any calendar would break later arithmetic.
_LAST_MOMENT: Final = 253_402_300_800.0


class Flaw(Enum):
    """The kinds of faults of a token."""

    MALFORMED = auto()
    EXPIRED = auto()
    CLAIM = auto()
    AUDIENCE = auto()


class BadToken(Exception):
    """The token is not acceptable; the text holds no part of the token."""

    def __init__(self, flaw: Flaw, message: str) -> None:
        super().__init__(message)
        self.flaw = flaw


@dataclass(frozen=True, slots=True)
class SignedToken:
    """The parts of a token; the signature covers the bytes in `signed`."""

    algorithm: str
    key_id: str | None
    claims: dict[str, Any] = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def parse_token(data: bytes) -> SignedToken:
    """Split a token into its parts; raise BadToken (RFC 7515, section 7.1)."""
    if len(data) > MAX_AUTH_DATA_BYTES:
        raise BadToken(Flaw.MALFORMED, f"got {len(data)} bytes, expected a token of at most {MAX_AUTH_DATA_BYTES}")
    parts = _COMPACT.fullmatch(data)
    if parts is None:
        raise BadToken(Flaw.MALFORMED, "expected a signed token of three parts (RFC 7515)")
    header = _json_object(_decoded(parts[1]), "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or not (key_id is None or isinstance(key_id, str)):
        raise BadToken(Flaw.MALFORMED, "expected alg, and kid if any, as text in the token's header")
    if "crit" in header or "b64" in header:
        raise BadToken(Flaw.MALFORMED, "the token's header demands extensions, none is supported")
    if key_id is not None and len(key_id) > LONGEST_KEY_ID:
        raise BadToken(Flaw.MALFORMED, f"expected a key id of at most {LONGEST_KEY_ID} characters")
    claims = _json_object(_decoded(parts[2]), "claims")
    return SignedToken(algorithm, key_id, claims, data[: parts.end(2)], _decoded(parts[3]))


def check_times(
    claims: dict[str, Any], now: float, skew_seconds: float, begins_at: tuple[str, ...] = ("nbf",)
) -> float | None:
    """Check the times of a token that are present; return its expiry (epoch seconds), skew included.

    Raise BadToken. Source: RFC 7519, section 4.1.
    """
    expires = _moment(claims, "exp")
    for name in begins_at:
        begins = _moment(claims, name)
        if begins is not None and now < begins - skew_seconds:
            raise BadToken(Flaw.CLAIM, f"not valid yet ({name})")
    if expires is None:
        return None
    if now >= expires + skew_seconds:
        raise BadToken(Flaw.EXPIRED, "expired")
    return expires + skew_seconds


def check_audience(claims: dict[str, Any], claim: str, wanted: frozenset[str]) -> None:
    """Check that the audience, a text or a list of texts, has one of `wanted`; raise BadToken."""
    found = claims.get(claim)
    audiences = found if isinstance(found, list) else [found]
    if not any(isinstance(audience, str) and audience in wanted for audience in audiences):
        raise BadToken(Flaw.AUDIENCE, f"claim {claim} does not name this audience")


def role_in(claims: dict[str, Any], claim: str) -> str:
    """Return the role in a claim: a text, or the first element of a list as in upstream; raise BadToken."""
    found = claims.get(claim)
    role = found[0] if isinstance(found, list) and found else found
    if not is_role(role):
        raise BadToken(Flaw.CLAIM, f"claim {claim} is no role: expected printable text, no blank at an end")
    assert isinstance(role, str)
    return role


def _decoded(segment: bytes) -> bytes:
    if len(segment) % 4 == 1:
        raise BadToken(Flaw.MALFORMED, "a part of the token is not base64url")
    content = urlsafe_b64decode(segment + b"=" * (-len(segment) % 4))
    # The last letter may carry unused bits.
    if urlsafe_b64encode(content).rstrip(b"=") != segment:
        raise BadToken(Flaw.MALFORMED, "a part of the token is not base64url in its one spelling")
    return content


def _json_object(content: bytes, what: str) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise BadToken(Flaw.MALFORMED, f"the token's {what}: expected a JSON object")
    return found


def _moment(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadToken(Flaw.CLAIM, f"claim {name}: expected seconds since the epoch")
    return min(max(float(value), 0.0), _LAST_MOMENT)
