"""What a configuration's TLS keys make, and how each fault is named."""

import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from proxy.app.metrics.counters import Counters
from proxy.config.config import Config, ConfigError
from proxy.core.log import open_log
from proxy.net.tls.contexts import context_settings, load
from proxy.net.tls.expiry import expiry
from proxy.net.tls.files import TlsFiles, check
from proxy.net.tls.suites import TLS_1_3_SUITES, BadTlsSetting, openssl_name, restrict
from tests.support.auth.tls import PemFiles, authority, certificate


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)


def config(**keys: object) -> Config:
    given = {"brokerServiceURL": "pulsar://broker", "brokerServiceURLTLS": "pulsar+ssl://broker", "clusterName": "c"}
    return Config.load(overrides=given | {key: str(value) for key, value in keys.items()})


def context(**keys: object) -> ssl.SSLContext:
    (settings,) = context_settings(config(**keys))
    return load(settings, time.time()).context


def faults(**keys: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check(config(**keys))
    return [str(problem) for problem in caught.value.problems]


# --- what is made ---------------------------------------------------------------------------------


@pytest.mark.threat("old-tls-version")
def test_a_server_speaks_1_2_and_1_3_and_asks_for_no_certificate(files: PemFiles) -> None:
    made = context(**files.server_keys)
    assert (made.minimum_version, made.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert made.verify_mode is ssl.CERT_NONE
    assert made.num_tickets == 1
    for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION):
        assert made.options & option


def test_brokers_are_verified_by_certificate_and_name(files: PemFiles) -> None:
    made = context(**files.broker_keys)
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, True)
    made = context(**files.broker_keys, tlsHostnameVerificationEnabled="false")
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, False)
    made = context(**files.broker_keys, tlsAllowInsecureConnection="true")
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_NONE, False)


def test_the_web_port_has_its_own_versions_and_falls_back_to_the_others(files: PemFiles) -> None:
    pair = {"tlsCertificateFilePath": files.certificate, "tlsKeyFilePath": files.key, "webServicePortTls": 0}
    assert context(**pair, tlsProtocols="TLSv1.3").minimum_version is ssl.TLSVersion.TLSv1_3
    made = context(**pair, tlsProtocols="TLSv1.3", webServiceTlsProtocols="TLSv1.2")
    assert made.maximum_version is ssl.TLSVersion.TLSv1_2


def test_the_seconds_that_certificates_have_left_are_counted(tmp_path: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    leaf = trustme.CA().issue_cert("localhost", not_after=end)
    files = PemFiles.write(tmp_path, leaf)
    counters, log = Counters(), open_log("error")
    loaded = TlsFiles(config(**files.server_keys), counters.tls, log, now=lambda: end.timestamp() - 60)
    assert counters.tls.expiries() == {"server": 60.0} == loaded.expiries()
    assert check(config(**files.server_keys), now=lambda: end.timestamp()) == ["the certificate of server has expired"]
    assert check(config(**files.server_keys), now=lambda: end.timestamp() - 1) == []


def test_a_port_without_certificate_names_the_key(files: PemFiles) -> None:
    assert faults(servicePortTls=0) == [
        "default: tlsCertificateFilePath: got nothing, expected a PEM file",
        "default: tlsKeyFilePath: got nothing, expected a PEM file",
    ]
    keys = files.server_keys | {"tlsKeyFilePath": ""}
    assert "tlsKeyFilePath: got nothing" in faults(**keys)[0]


@pytest.mark.parametrize("key", ["tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath"])
@pytest.mark.parametrize(
    ("contents", "expected"), [(None, "no such file"), (b"", "PEM file"), (b"-----BEGIN X", "PEM")]
)
def test_a_file_that_is_none_is_named_with_its_key(
    files: PemFiles, tmp_path: Path, key: str, contents: bytes | None, expected: str
) -> None:
    broken = tmp_path / "broken.pem"
    if contents is not None:
        broken.write_bytes(contents)
    keys = files.server_keys | {"tlsTrustCertsFilePath": files.trust, key: broken}
    (fault,) = faults(**keys)
    assert expected in fault
    assert repr(str(broken)) in fault
    assert key in fault


def test_a_key_of_another_certificate_is_named(files: PemFiles, tmp_path: Path) -> None:
    other = PemFiles.write(tmp_path / "other", certificate("second"))
    (fault,) = faults(**files.server_keys | {"tlsKeyFilePath": other.key})
    assert "expected the key of the certificate in" in fault


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(files: PemFiles) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    (fault,) = faults(**files.server_keys)
    assert "expected a key that is not encrypted" in fault


def test_certificates_cannot_be_demanded_without_trust_or_checking(files: PemFiles) -> None:
    demanded = files.server_keys | {"tlsRequireTrustedClientCertOnConnect": "true"}
    assert "tlsTrustCertsFilePath: got nothing" in faults(**demanded)[0]
    insecure = demanded | {"tlsAllowInsecureConnection": "true", "tlsTrustCertsFilePath": files.trust}
    assert "tlsAllowInsecureConnection=false" in faults(**insecure)[0]


@pytest.mark.parametrize("year", [1999, 2030, 2049, 2050, 2999])
@pytest.mark.parametrize("kind", list(trustme.KeyType))
def test_an_expiry_is_read_in_both_of_its_forms(year: int, kind: trustme.KeyType) -> None:
    end = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)
    leaf = authority().issue_cert(
        "localhost", not_before=datetime(1990, 1, 1, tzinfo=UTC), not_after=end, key_type=kind
    )
    assert expiry(b"# a comment\n" + leaf.cert_chain_pems[0].bytes()) == end.timestamp()


@pytest.mark.parametrize("cut", [0, 1, 5, 100, 300])
def test_a_certificate_that_is_none_has_no_expiry(cut: int) -> None:
    der = ssl.PEM_cert_to_DER_cert(certificate().cert_chain_pems[0].bytes().decode())[:cut]
    with pytest.raises(ValueError, match=r"certificate|X\.509"):
        expiry(ssl.DER_cert_to_PEM_cert(der).encode())


# --- versions and suites --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_standard_names_are_openssls_too(standard: str, openssl: str) -> None:
    assert openssl_name(standard) == openssl
    restrict(_fresh(), (), "p", (standard,), "c")


def _fresh() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _versions(protocols: tuple[str, ...], ciphers: tuple[str, ...]) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    made = _fresh()
    restrict(made, protocols, "tlsProtocols", ciphers, "tlsCiphers")
    return made.minimum_version, made.maximum_version


OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
OLD_SUITE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
ALL_NEW = tuple(sorted(TLS_1_3_SUITES))


@pytest.mark.parametrize(
    ("protocols", "ciphers", "expected"),
    [
        ((), (), (OLD, NEW)),
        (("TLSv1.2",), (), (OLD, OLD)),
        (("tlsv1.3", "TLSv1.2"), (), (OLD, NEW)),
        ((), (OLD_SUITE,), (OLD, OLD)),
        ((), (OLD_SUITE, *ALL_NEW), (OLD, NEW)),
        ((), ALL_NEW, (NEW, NEW)),
        (("TLSv1.3",), (OLD_SUITE, *ALL_NEW), (NEW, NEW)),
    ],
)
def test_a_version_needs_suites_and_to_be_named(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], expected: tuple[ssl.TLSVersion, ssl.TLSVersion]
) -> None:
    assert _versions(protocols, ciphers) == expected


@pytest.mark.parametrize(
    ("protocols", "ciphers", "key", "expected"),
    [
        (("TLSv1.1",), (), "tlsProtocols", "older versions are not spoken"),
        (("SSLv3", "TLSv1.2"), (), "tlsProtocols", "TLSv1.3 and TLSv1.2"),
        ((), ("TLS_NO_SUCH_WITH_SUITE",), "tlsCiphers", "cipher suites that OpenSSL has"),
        ((), ("ALL",), "tlsCiphers", "cipher suites that OpenSSL has"),
        ((), (OLD_SUITE, "TLS_AES_256_GCM_SHA384"), "tlsCiphers", "all suites of TLS 1.3"),
        (("TLSv1.3",), (OLD_SUITE,), "tlsCiphers", "a suite of TLSv1.3"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], key: str, expected: str
) -> None:
    with pytest.raises(BadTlsSetting, match=expected) as caught:
        _versions(protocols, ciphers)
    assert caught.value.key == key


def test_authorities_need_not_have_signed_themselves(tmp_path: Path) -> None:
    # As in Java: whatever is in the trust file is trusted.
    middle = authority("first").create_child_ca()
    files = PemFiles.write(tmp_path)
    files.trust.write_bytes(middle.cert_pem.bytes())
    assert context(**files.broker_keys).verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
