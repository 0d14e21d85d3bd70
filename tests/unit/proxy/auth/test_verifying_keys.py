"""Which RSA keys are refused, because a check of a signature would cost more than it is charged for."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from proxy.auth.providers.verifying_keys import (
    LARGEST_RSA_EXPONENT,
    LEAST_RSA_BITS,
    MOST_RSA_BITS,
    issuer_key,
    public_key,
)

USUAL = 65537


def modulus(bits: int) -> int:
    """Return an odd number of so many bits; nobody has its factors."""
    return (1 << bits) - 159


def base64url(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8)).rstrip(b"=").decode()


def published(bits: int, exponent: int) -> dict[str, Any]:
    return {"kty": "RSA", "kid": "a", "n": base64url(modulus(bits)), "e": base64url(exponent)}


def pem(bits: int, exponent: int) -> bytes:
    key = RSAPublicNumbers(exponent, modulus(bits)).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


TOO_DEAR = [
    (MOST_RSA_BITS + 8, USUAL, "expected at most 8192"),
    (LEAST_RSA_BITS, LARGEST_RSA_EXPONENT + 1, "public exponent above 2\\^32"),
    (LEAST_RSA_BITS, modulus(LEAST_RSA_BITS) - 2, "public exponent above 2\\^32"),
    (LEAST_RSA_BITS - 8, USUAL, "expected at least 2048"),
]


@pytest.mark.threat("slow-issuer-keys")
@pytest.mark.parametrize(("bits", "exponent", "reason"), TOO_DEAR, ids=["large", "exponent", "huge exponent", "small"])
def test_a_key_whose_checks_cost_more_than_they_are_charged_is_refused(bits: int, exponent: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        issuer_key(published(bits, exponent))
    with pytest.raises(ValueError, match=reason):
        public_key(pem(bits, exponent), "RSA")


@pytest.mark.parametrize("bits", [LEAST_RSA_BITS, 3072, 4096, MOST_RSA_BITS])
@pytest.mark.parametrize("exponent", [3, USUAL, LARGEST_RSA_EXPONENT - 1])
def test_usual_keys_are_usable(bits: int, exponent: int) -> None:
    assert issuer_key(published(bits, exponent)).algorithms == {"RS256", "RS384", "RS512"}
    assert "PS256" in public_key(pem(bits, exponent), "RSA").algorithms
