"""The TLS settings that keys of a configuration make, or their faults; and stores of PKCS#12."""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from proxy.config.config import Config, ConfigError
from proxy.net.tls.contexts import context_settings, load
from proxy.net.tls.files import check
from proxy.net.tls.session import new_session

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig

# That of all stores of tests, too.
PASSWORD: Final = "hush-hush"


def tls_config(**keys: object) -> Config:
    given = {"brokerServiceURL": "pulsar://broker", "brokerServiceURLTLS": "pulsar+ssl://broker", "clusterName": "c"}
    return Config.load(overrides=given | {key: str(value) for key, value in keys.items()})


def settings(**keys: object) -> "TlsConfig":
    """Give the settings of the only port, or towards brokers."""
    (made,) = context_settings(tls_config(**keys))
    return load(made, time.time()).config


def faults(**keys: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check(tls_config(**keys))
    return [str(problem) for problem in caught.value.problems]


def shown_by(served: "TlsConfig") -> Sequence[bytes]:
    """Give the certificates that a client sees."""
    calling = settings(tlsEnabledWithBroker="true", tlsAllowInsecureConnection="true")
    server, client, no_room = new_session(served, ""), new_session(calling, "localhost"), memoryview(bytearray())
    for _ in range(3):
        server.receive(client.take_own(), no_room)
        client.receive(server.take_own(), no_room)
    return client.peer_certificates()


def self_signed(key: CertificateIssuerPrivateKeyTypes, subject: str = "C=DE") -> trustme.LeafCert:
    """Give a certificate of localhost for any key."""
    name, localhost = x509.Name.from_rfc4514_string(subject), x509.SubjectAlternativeName([x509.DNSName("localhost")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, datetime(2020, 1, 1), datetime(2999, 1, 1))
    algorithm = None if isinstance(key, Ed25519PrivateKey | Ed448PrivateKey) else SHA256()
    made = builder.add_extension(localhost, critical=not subject).sign(key, algorithm)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return trustme.LeafCert(secret, made.public_bytes(Encoding.PEM), [])


def write_store(path: Path, own: trustme.LeafCert | None = None, trusted: Sequence[trustme.CA] = ()) -> Path:
    """Write a store with a key, its certificate and its chain, or with authorities; return its path."""
    others = [ca.cert_pem.bytes() for ca in trusted] if own is None else [pem.bytes() for pem in own.cert_chain_pems]
    certificates = [x509.load_pem_x509_certificate(pem) for pem in others]
    key = None if own is None else load_pem_private_key(own.private_key_pem.bytes(), None)
    leaf = None if own is None else certificates.pop(0)
    encrypted = BestAvailableEncryption(PASSWORD.encode())
    path.write_bytes(serialize_key_and_certificates(b"a name", key, leaf, certificates, encrypted))  # type: ignore[arg-type]
    return path


def store_keys(store: Path, trust: Path | None = None) -> dict[str, Any]:
    """Give the keys of a proxy that serves TLS with stores."""
    return {"servicePortTls": 0, **_stores("tls", store, trust)}


def broker_store_keys(trust: Path, store: Path | None = None) -> dict[str, Any]:
    """Give the keys of a proxy that speaks TLS to its broker with stores."""
    return {"tlsEnabledWithBroker": "true", **_stores("brokerClientTls", store, trust)}


def _stores(prefix: str, store: Path | None, trust: Path | None) -> dict[str, Any]:
    given: dict[str, Any] = {f"{prefix}EnabledWithKeyStore": "true"}
    for kind, path in (("KeyStore", store), ("TrustStore", trust)):
        if path is not None:
            given |= {f"{prefix}{kind}": path, f"{prefix}{kind}Type": "PKCS12", f"{prefix}{kind}Password": PASSWORD}
    return given
