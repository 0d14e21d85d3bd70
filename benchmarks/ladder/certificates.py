"""Owns the certificates of one run: an authority of its own and one identity for 127.0.0.1, good for a day, written
anew each time. Nothing outside the ladder trusts them, and none of them is kept."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=1)
# Clocks of one machine agree, but a certificate's times are whole seconds.
MARGIN = timedelta(minutes=5)


@dataclass(frozen=True)
class Certificates:
    """PEM files: what clients trust, what servers show, and both parts of that in one file (HAProxy wants it so)."""

    trust: Path
    certificate: Path
    key: Path
    combined: Path


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MARGIN)
        .not_valid_after(now + LIFETIME)
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = _builder("ladder authority", "ladder authority", key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _identity(key: ec.EllipticCurvePrivateKey, authority_key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1")), x509.DNSName("localhost")])
    builder = _builder("ladder", "ladder authority", key)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def make_certificates(directory: Path) -> Certificates:
    """Write new certificates into `directory`, over those of an earlier run; keys are for the owner's eyes only.

    P-256, so that a storm of handshakes measures the server's ways rather than RSA.
    """
    directory.mkdir(parents=True, exist_ok=True)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    shown = _identity(key, authority_key).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    trusted = _authority(authority_key).public_bytes(Encoding.PEM)
    return Certificates(
        trust=_write(directory / "trust.pem", trusted),
        certificate=_write(directory / "certificate.pem", shown),
        key=_write(directory / "key.pem", private),
        combined=_write(directory / "combined.pem", shown + private),
    )


def _write(path: Path, content: bytes) -> Path:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path
