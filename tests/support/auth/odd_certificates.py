"""Make certificates that no honest authority makes, and those that people make by hand."""

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256, HashAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.auth.tls import HOST

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)


class Odd(NamedTuple):
    """A certificate, its key, and those that its owner shows behind it."""

    certificate: x509.Certificate
    key: Any
    behind: tuple[x509.Certificate, ...] = ()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def shown(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Have a context show it, however weak it is."""
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        pem = [self.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())]
        pem += [each.public_bytes(Encoding.PEM) for each in (self.certificate, *self.behind)]
        with TemporaryDirectory() as directory:
            file = Path(directory) / "own.pem"
            file.write_bytes(b"".join(pem))
            context.load_cert_chain(file)
        return context


@cache
def root() -> Odd:
    """Give an authority that has signed itself."""
    return odd(authority=True, subject="root")


def odd(
    issuer: Odd | None = None,
    *,
    authority: bool = False,
    key: Any = None,
    subject: str = "odd",
    names: Sequence[str] = (HOST,),
    begins: datetime = NOW - YEAR,
    ends: datetime = NOW + YEAR,
) -> Odd:
    """Give a certificate of an issuer, or one that has signed itself; without a subject for an empty one."""
    key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if not authority or issuer is None:
        alternative = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(alternative, critical=not subject)
    signed = builder.sign(key if issuer is None else issuer.key, SHA256())
    above = () if issuer is None or issuer is root() else (issuer.certificate, *issuer.behind)
    return Odd(signed, key, above)


def below(count: int) -> Odd:
    """Give a certificate with so many authorities between it and the root."""
    issuer = root()
    for number in range(count):
        issuer = odd(issuer, authority=True, subject=f"middle {number}")
    return odd(issuer)


def huge_key() -> rsa.RSAPrivateKey:
    """Give an RSA key of nearly 16 Kbit at once: of two primes of Mersenne."""
    p, q, e = (1 << 11213) - 1, (1 << 4423) - 1, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(e, p * q)
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    return rsa.RSAPrivateNumbers(p, q, d, *crt, public).private_key(unsafe_skip_rsa_key_validation=True)


def first_version(made: Odd) -> Odd:
    """Give a certificate that has signed itself as of version 1: without its version and extensions."""
    parts = _inside(made)[1:-1]
    return _signed_again(made, made.key, parts, parts[1], SHA256())


def signed_with_sha1(made: Odd, by: Odd) -> Odd:
    """Give a certificate with another signature of its issuer."""
    version, serial, _, *parts = _inside(made)
    algorithm = bytes.fromhex("300906072a8648ce3d0401")
    return _signed_again(made, by.key, [version, serial, algorithm, *parts], algorithm, SHA1())


def _signed_again(made: Odd, key: Any, parts: Sequence[bytes], algorithm: bytes, digest: HashAlgorithm) -> Odd:
    inner = _sequence(b"".join(parts))
    signature = key.sign(inner, ec.ECDSA(digest))
    der = _sequence(inner + algorithm + bytes((3,)) + _length(len(signature) + 1) + b"\0" + signature)
    return Odd(x509.load_der_x509_certificate(der), made.key, made.behind)


def _inside(made: Odd) -> list[bytes]:
    """Return the elements of what is signed: version, serial number, algorithm and so on, extensions."""
    data = made.certificate.tbs_certificate_bytes
    parts, at = list[bytes](), _head(data)[0]
    while at < len(data):
        head, size = _head(data[at:])
        parts.append(data[at : at + head + size])
        at += head + size
    return parts


def _head(data: bytes) -> tuple[int, int]:
    """Return the bytes of an element before its contents, and of these."""
    head = 2 + (data[1] & 0x7F if data[1] & 0x80 else 0)
    return head, int.from_bytes(data[2:head], "big") if head > 2 else data[1]


def _length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    return bytes((0x81, size)) if size < 0x100 else b"\x82" + size.to_bytes(2, "big")


def _sequence(inside: bytes) -> bytes:
    return b"\x30" + _length(len(inside)) + inside
