"""Keys and tokens made by hand: whatever a client, an issuer or a forger could come up with."""

import json
import math
from base64 import b64encode, urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from joserfc import jws
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

NOW = 1_800_000_000.0
SECRET = bytes(range(64))
CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


def rsa_key(number: int = 0) -> RSAKey:
    """Give a key that is made once per test run; `number` tells several apart."""
    return _rsa_key(number)


@cache
def _rsa_key(number: int) -> RSAKey:
    return RSAKey.generate_key(2048)


@cache
def weak_rsa_key() -> rsa.RSAPublicKey:
    return rsa.generate_private_key(65537, 1024).public_key()


def dear_rsa_key() -> RSAKey:
    """Give a key of a usual size whose public exponent makes each check of a signature long."""
    key = rsa_key().private_key
    assert key is not None
    usual = key.private_numbers()
    order = math.lcm(usual.p - 1, usual.q - 1)
    exponent = next(number for number in range(2**33 + 1, 2**34, 2) if math.gcd(number, order) == 1)
    private = pow(exponent, -1, order)
    numbers = rsa.RSAPrivateNumbers(
        usual.p, usual.q, private, rsa.rsa_crt_dmp1(private, usual.p), rsa.rsa_crt_dmq1(private, usual.q),
        usual.iqmp, rsa.RSAPublicNumbers(exponent, usual.p * usual.q),
    )  # fmt: skip
    pem = numbers.private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return RSAKey.import_key(pem)


def ec_key(curve: str = "P-256", number: int = 0) -> ECKey:
    return _ec_key(curve, number)


@cache
def _ec_key(curve: str, number: int) -> ECKey:
    return ECKey.generate_key(curve)


def key_for(algorithm: str) -> Key:
    if algorithm.startswith("HS"):
        return OctKey.import_key(SECRET)
    return ec_key(CURVES[algorithm]) if algorithm in CURVES else rsa_key()


def signed(claims: dict[str, Any], algorithm: str = "HS256", key: Key | None = None, **header: Any) -> bytes:
    """Make a token; `header` adds to its header."""
    return signed_bytes(json.dumps(claims).encode(), algorithm, key, **header)


def signed_bytes(payload: bytes, algorithm: str = "HS256", key: Key | None = None, **header: Any) -> bytes:
    model = jws.JWSRegistry.algorithms[algorithm]
    head = json.dumps({"alg": algorithm, **header}).encode()
    covered = b64(head) + b"." + b64(payload)
    return covered + b"." + b64(model.sign(covered, key or key_for(algorithm)))


def b64(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def data_url(content: bytes) -> str:
    """Give a key as a setting that has it inline."""
    return f"data:;base64,{b64encode(content).decode()}"


def der(key: Key | rsa.RSAPublicKey) -> bytes:
    return _public(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def pem(key: Key) -> bytes:
    return _public(key).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _public(key: Key | rsa.RSAPublicKey) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    if isinstance(key, rsa.RSAPublicKey):
        return key
    assert isinstance(key, RSAKey | ECKey)
    return key.public_key
