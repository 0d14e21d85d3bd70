"""What a configuration's TLS keys make, and how each fault is named."""

import ssl
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from proxy.core.counters import Counters
from proxy.core.log import open_log
from proxy.net.tls.expiry import validity
from proxy.net.tls.files import TlsFiles, check
from proxy.net.tls.pem import CERTIFICATES, of_kind
from proxy.net.tls.session import new_session
from proxy.net.tls.suites import BadTlsSetting, versions_and_suites
from tests.support.auth.tls import (
    PemFiles,
    Refused,
    authority,
    certificate,
    client_context,
    hands_shaken,
    server_context,
)
from tests.support.auth.tls_settings import faults, settings, tls_config
from tests.support.proxies.counted import counted_by

if TYPE_CHECKING:
    from proxy.core.native import TlsConfig


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)


def client(version: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    made = client_context()
    made.minimum_version = made.maximum_version = version
    if ciphers:
        made.set_ciphers(ciphers)
    return made


def spoken(served: "TlsConfig") -> set[str]:
    """Give the versions that a server speaks."""
    found = set()
    for version in (OLD, NEW):
        with suppress(Refused):
            found.add(hands_shaken(served, client(version))[0].agreed[0])
    return found


# --- what is made ---------------------------------------------------------------------------------


@pytest.mark.threat("old-tls-version")
def test_a_server_speaks_1_2_and_1_3_and_asks_for_no_certificate(files: PemFiles) -> None:
    served = settings(**files.server_keys)
    assert spoken(served) == {"TLSv1.2", "TLSv1.3"}
    hello = bytearray(_hello())
    # TLS 1.1, in the record and in the hello.
    hello[2] = hello[10] = 2
    session = new_session(served, "")
    session.receive(bytes(hello), memoryview(bytearray()))
    assert session.failure is not None
    assert session.failure[0] == "version_or_cipher"


def _hello() -> bytes:
    made = client(OLD)
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        made.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("keys", "name", "whose", "refused"),
    [
        ({}, "localhost", "first", None),
        ({}, "elsewhere", "first", "hostname mismatch"),
        ({}, "localhost", "second", "nobody trusted has signed it"),
        ({"tlsHostnameVerificationEnabled": "false"}, "elsewhere", "first", None),
        ({"tlsHostnameVerificationEnabled": "false"}, "localhost", "second", "nobody trusted has signed it"),
        ({"tlsAllowInsecureConnection": "true"}, "elsewhere", "second", None),
    ],
)
def test_brokers_are_verified_by_certificate_and_name(
    files: PemFiles, keys: dict[str, str], name: str, whose: str, refused: str | None
) -> None:
    broker = server_context(certificate(whose))
    with nullcontext() if refused is None else pytest.raises(Refused, match=refused):
        hands_shaken(settings(**files.broker_keys, **keys), broker, name)


def test_the_web_port_has_its_own_versions_and_falls_back_to_the_others(files: PemFiles) -> None:
    pair = {"tlsCertificateFilePath": files.certificate, "tlsKeyFilePath": files.key, "webServicePortTls": 0}
    assert spoken(settings(**pair, tlsProtocols="TLSv1.3")) == {"TLSv1.3"}
    assert spoken(settings(**pair, tlsProtocols="TLSv1.3", webServiceTlsProtocols="TLSv1.2")) == {"TLSv1.2"}


def test_the_times_at_which_certificates_expire_are_shown(tmp_path: Path) -> None:
    end = datetime(2030, 1, 1, tzinfo=UTC)
    leaf = trustme.CA().issue_cert("localhost", not_after=end)
    files = PemFiles.write(tmp_path, leaf)
    counters, log = Counters(), open_log("error")
    loaded = TlsFiles(tls_config(**files.server_keys), counters, log, now=lambda: end.timestamp() - 60)
    found = counted_by(counters, "tls_cert_expiration_timestamp_seconds")
    assert found == {"server": round(end.timestamp())} == loaded.expiries()
    assert check(tls_config(**files.server_keys), now=lambda: end.timestamp()) == [
        "the certificate of server has expired"
    ]
    assert check(tls_config(**files.server_keys), now=lambda: end.timestamp() - 1) == []


def test_what_is_not_valid_yet_or_no_more_is_told(files: PemFiles, tmp_path: Path) -> None:
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    leaf = trustme.CA().issue_cert("localhost", not_before=begin, not_after=end)
    keys = PemFiles.write(tmp_path / "own", leaf).server_keys
    assert check(tls_config(**keys), now=lambda: begin.timestamp()) == []
    assert check(tls_config(**keys), now=lambda: begin.timestamp() - 1) == [
        "the certificate of server is not valid yet"
    ]
    keys["tlsTrustCertsFilePath"] = files.trust
    files.trust.write_bytes(files.trust.read_bytes() + leaf.cert_chain_pems[0].bytes())
    assert check(tls_config(**keys), now=lambda: end.timestamp() - 1) == []
    assert check(tls_config(**keys), now=lambda: end.timestamp()) == [
        "the certificate of server has expired",
        f"tlsTrustCertsFilePath: '{files.trust}' has a certificate that has expired",
    ]


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
    (der,) = of_kind(b"# a comment\n" + leaf.cert_chain_pems[0].bytes(), CERTIFICATES)
    assert validity(der) == (datetime(1990, 1, 1, tzinfo=UTC).timestamp(), end.timestamp())


@pytest.mark.parametrize("cut", [0, 1, 5, 100, 300])
def test_a_certificate_that_is_none_has_no_expiry(cut: int) -> None:
    der = ssl.PEM_cert_to_DER_cert(certificate().cert_chain_pems[0].bytes().decode())[:cut]
    with pytest.raises(ValueError, match=r"certificate|X\.509"):
        validity(der)


# --- versions and suites --------------------------------------------------------------------------

OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
OLD_SUITE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
NEW_SUITE = "TLS_AES_256_GCM_SHA384"
TLS_1_2, TLS_1_3 = 0x0303, 0x0304


@pytest.mark.parametrize(
    ("standard", "openssl"),
    [
        (OLD_SUITE, "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_a_suite_has_the_names_of_java_and_of_openssl(standard: str, openssl: str) -> None:
    assert versions_and_suites((), "p", (standard,), "c") == versions_and_suites((), "p", (openssl,), "c")


def test_only_the_suites_that_are_named_are_used(files: PemFiles) -> None:
    served = settings(**files.server_keys, tlsCiphers="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256")
    assert hands_shaken(served, client(NEW))[1].cipher()[0] == "TLS_AES_128_GCM_SHA256"  # type: ignore[index]
    with pytest.raises(Refused, match="no cipher suite in common"):
        hands_shaken(served, client(OLD, "ECDHE-ECDSA-AES128-GCM-SHA256"))


@pytest.mark.parametrize(
    ("protocols", "ciphers", "expected"),
    [
        ((), (), [TLS_1_2, TLS_1_3]),
        (("TLSv1.2",), (), [TLS_1_2]),
        (("tlsv1.3", "TLSv1.2"), (), [TLS_1_3, TLS_1_2]),
        ((), (OLD_SUITE,), [TLS_1_2]),
        ((), (OLD_SUITE, NEW_SUITE), [TLS_1_2, TLS_1_3]),
        ((), (NEW_SUITE,), [TLS_1_3]),
        (("TLSv1.3",), (OLD_SUITE, NEW_SUITE), [TLS_1_3]),
    ],
)
def test_a_version_needs_suites_and_to_be_named(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], expected: list[int]
) -> None:
    assert versions_and_suites(protocols, "tlsProtocols", ciphers, "tlsCiphers")[0] == expected


@pytest.mark.parametrize(
    ("protocols", "ciphers", "key", "expected"),
    [
        (("TLSv1.1",), (), "tlsProtocols", "older versions are not spoken"),
        (("SSLv3", "TLSv1.2"), (), "tlsProtocols", "TLSv1.3 and TLSv1.2"),
        ((), ("TLS_NO_SUCH_WITH_SUITE",), "tlsCiphers", "one of TLS_AES_128_GCM_SHA256"),
        ((), ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",), "tlsCiphers", "one of TLS_AES_128_GCM_SHA256"),
        ((), ("TLS_RSA_WITH_AES_256_CBC_SHA",), "tlsCiphers", "one of TLS_AES_128_GCM_SHA256"),
        ((), ("ALL",), "tlsCiphers", "one of TLS_AES_128_GCM_SHA256"),
        (("TLSv1.3",), (OLD_SUITE,), "tlsCiphers", "a suite of TLSv1.3"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(
    protocols: tuple[str, ...], ciphers: tuple[str, ...], key: str, expected: str
) -> None:
    with pytest.raises(BadTlsSetting, match=expected) as caught:
        versions_and_suites(protocols, "tlsProtocols", ciphers, "tlsCiphers")
    assert caught.value.key == key


def test_suites_that_the_certificate_does_not_fit_are_told(files: PemFiles, tmp_path: Path) -> None:
    rsa, ecdsa = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    with_rsa = PemFiles.write(tmp_path / "rsa", trustme.CA().issue_cert("localhost", key_type=trustme.KeyType.RSA))
    assert faults(**files.server_keys, tlsCiphers=rsa) == [
        f"command line: tlsCiphers: got {rsa}, expected a suite of ECDSA, as the certificate in "
        f"'{files.certificate}' (tlsCertificateFilePath)"
    ]
    assert "a suite of RSA" in faults(**with_rsa.server_keys, tlsCiphers=ecdsa)[0]
    older = {"tlsCiphers": f"{rsa},TLS_AES_128_GCM_SHA256", "tlsProtocols": "TLSv1.2"}
    assert "a suite of ECDSA" in faults(**files.server_keys, **older)[0]
    for keys in (
        files.server_keys | {"tlsCiphers": f"{rsa},{ecdsa}"},
        files.server_keys | {"tlsCiphers": older["tlsCiphers"]},
        with_rsa.server_keys | {"tlsCiphers": rsa},
        # The suite is the broker's choice.
        files.broker_keys | {"brokerClientTlsCiphers": rsa},
    ):
        assert check(tls_config(**keys)) == []


def test_authorities_need_not_have_signed_themselves(tmp_path: Path) -> None:
    # As in Java: whatever is in the trust file is trusted.
    middle = authority("first").create_child_ca()
    files = PemFiles.write(tmp_path)
    files.trust.write_bytes(middle.cert_pem.bytes())
    broker = server_context(middle.issue_cert("localhost"))
    hands_shaken(settings(**files.broker_keys), broker, "localhost")


def test_a_certificate_in_the_trust_file_is_trusted_itself_as_long_as_it_is_in_force(tmp_path: Path) -> None:
    files = PemFiles.write(tmp_path)
    own = trustme.CA().issue_cert("localhost")
    files.trust.write_bytes(own.cert_chain_pems[0].bytes())
    hands_shaken(settings(**files.broker_keys), server_context(own), "localhost")
    with pytest.raises(Refused, match="elsewhere"):
        hands_shaken(settings(**files.broker_keys), server_context(own), "elsewhere")
    expired = trustme.CA().issue_cert("localhost", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    files.trust.write_bytes(expired.cert_chain_pems[0].bytes())
    with pytest.raises(Refused, match="expired"):
        hands_shaken(settings(**files.broker_keys), server_context(expired), "localhost")
