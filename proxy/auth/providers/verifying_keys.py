"""The keys that verify the signatures of tokens.

Rule: the kind of the key decides which algorithms are allowed, never the token. A public key is no secret, so a token
that is "signed" with a public key by HMAC proves nothing, and no key allows "none". Keys that upstream's library calls
too weak are refused (RFC 7518, sections 3.2 and 3.3), and RSA keys whose checks would take longer than they are charged
for: the time grows with the exponent. This module knows no configuration key.
"""

from base64 import urlsafe_b64decode
from typing import Any, Final, Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from proxy.auth.providers.signed_token import SignedToken

Family = Literal["RSA", "EC"]

LEAST_SECRET_BYTES: Final = 32
LEAST_RSA_BITS: Final = 2048
MOST_RSA_BITS: Final = 8192
# Usual is 65537. With an exponent as long as the key a check takes as long as a signature: 10 ms.
LARGEST_RSA_EXPONENT: Final = 2**32
_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
# Upstream's OpenID provider does not allow PSS.
ISSUER_RSA: Final = frozenset({"RS256", "RS384", "RS512"})
# A check of a signature takes about this long: measured are 0.16 ms with P-256, and 2.5 ms with P-384 and P-521.
QUICK_SECONDS: Final = 0.0002
SLOW_SECONDS: Final = 0.0025
_QUICK_RSA_BITS: Final = 3072
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class VerifyingKey:
    """A key, the algorithms that are allowed for it, and the time that a check takes."""

    __slots__ = ("_key", "algorithms", "seconds")

    def __init__(self, key: Key, algorithms: frozenset[str]) -> None:
        self._key = key
        self.algorithms = algorithms
        self.seconds = _seconds(key)

    def verifies(self, token: SignedToken) -> bool:
        """Return whether the token is signed with this key, by an algorithm of the key's kind."""
        if token.algorithm not in self.algorithms:
            return False
        try:
            return JWSRegistry.algorithms[token.algorithm].verify(token.signed, token.signature, self._key)
        except (JoseError, ValueError):
            return False


def secret_key(raw: bytes) -> VerifyingKey:
    """Return a key for HMAC signatures; raise ValueError. Longer digests need longer keys."""
    if len(raw) < LEAST_SECRET_BYTES:
        raise ValueError(f"got a secret of {len(raw)} bytes, expected at least {LEAST_SECRET_BYTES}")
    algorithms = frozenset(f"HS{bits}" for bits in (256, 384, 512) if len(raw) * 8 >= bits)
    # The import would only warn of a secret that looks like PEM. Refuse: a public key is no secret.
    if raw.lstrip().startswith(b"-----BEGIN"):
        raise ValueError("got a PEM key, expected the bytes of a secret (for public keys: tokenPublicKey)")
    return VerifyingKey(OctKey.import_key(raw), algorithms)


def public_key(raw: bytes, family: Family) -> VerifyingKey:
    """Parse an RSA or EC public key, DER or PEM (SubjectPublicKeyInfo); raise ValueError."""
    try:
        loaded = load_pem_public_key(raw) if b"-----BEGIN" in raw else load_der_public_key(raw)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError("expected an RSA or EC public key, DER or PEM") from error
    pem = loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if isinstance(loaded, RSAPublicKey) and family == "RSA":
        _check_rsa(loaded.key_size, loaded.public_numbers().e)
        return VerifyingKey(RSAKey.import_key(pem), _RSA)
    if isinstance(loaded, EllipticCurvePublicKey) and family == "EC":
        return _ec(ECKey.import_key(pem))
    raise ValueError(f"got a key of another kind, expected {family} (tokenPublicAlg)")


def issuer_key(published: dict[str, Any]) -> VerifyingKey:
    """Parse a key that an issuer publishes (RFC 7517); raise ValueError for a key of an unusable kind."""
    # Pass only the parts of a public key: private or unknown parts must not have an effect.
    try:
        if published.get("kty") == "RSA":
            modulus, exponent = (urlsafe_b64decode(published[name] + "==").lstrip(b"\0") for name in ("n", "e"))
            _check_rsa(len(modulus) * 8, int.from_bytes(exponent))
            key = VerifyingKey(RSAKey.import_key({name: published[name] for name in ("kty", "n", "e")}), ISSUER_RSA)
        elif published.get("kty") == "EC":
            key = _ec(ECKey.import_key({name: published[name] for name in ("kty", "crv", "x", "y")}))
        else:
            raise ValueError("a kind of key that is not supported")
    except (JoseError, KeyError, TypeError) as error:
        raise ValueError("not a public key") from error
    algorithm = published.get("alg")
    if algorithm is None:
        return key
    if algorithm not in tuple(key.algorithms):
        raise ValueError("an algorithm that is not of the key's kind")
    return VerifyingKey(key._key, frozenset({algorithm}))


def _seconds(key: Key) -> float:
    if isinstance(key, RSAKey):
        return SLOW_SECONDS if key.raw_value.key_size > _QUICK_RSA_BITS else QUICK_SECONDS
    return SLOW_SECONDS if isinstance(key, ECKey) and key.curve_name != "P-256" else QUICK_SECONDS


def _check_rsa(bits: int, exponent: int) -> None:
    # Checked before the import, which would only warn of a small key, and which takes long for a huge one.
    if bits < LEAST_RSA_BITS:
        raise ValueError(f"got an RSA key of {bits} bits, expected at least {LEAST_RSA_BITS}")
    if bits > MOST_RSA_BITS:
        raise ValueError(f"got an RSA key of {bits} bits, expected at most {MOST_RSA_BITS}")
    if exponent > LARGEST_RSA_EXPONENT:
        raise ValueError("got an RSA key with a public exponent above 2^32, expected a small one such as 65537")


def _ec(key: ECKey) -> VerifyingKey:
    # Of other curves joserfc raises KeyError for the name.
    curve = key.raw_value.curve.name
    algorithm = _CURVES.get(curve)
    if algorithm is None:
        raise ValueError(f"got an EC key on curve {curve}, expected one of P-256, P-384, P-521")
    return VerifyingKey(key, frozenset({algorithm}))
