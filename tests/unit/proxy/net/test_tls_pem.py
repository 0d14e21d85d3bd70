"""Keys and certificates of PEM files in all the forms in which they come."""

import os
import re
import socket
import ssl
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from proxy.core.files import LARGEST_FILE_BYTES
from proxy.net.tls.files import check
from tests.support.auth.tls import (
    PemFiles,
    Refused,
    authority,
    certificate,
    client_context,
    hands_shaken,
)
from tests.support.auth.tls_settings import faults, self_signed, settings, shown_by, tls_config

RSA = trustme.CA(key_type=trustme.KeyType.RSA)


@pytest.fixture
def files(tmp_path: Path) -> PemFiles:
    return PemFiles.write(tmp_path)


def trusting(ca: trustme.CA | None = None) -> ssl.SSLContext:
    if ca is None:
        return client_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ca.configure_trust(context)
    return context


def key_text(leaf: trustme.LeafCert, form: PrivateFormat) -> bytes:
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


PKCS8, OLDER = PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL


@pytest.mark.parametrize("kind", ["RSA", "EC"])
@pytest.mark.parametrize("form", [PKCS8, OLDER])
@pytest.mark.parametrize("label", [None, b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"])
def test_a_key_is_read_in_each_form_under_any_label(
    tmp_path: Path, kind: str, form: PrivateFormat, label: bytes | None
) -> None:
    ca = RSA if kind == "RSA" else authority()
    leaf = ca.issue_cert("localhost", key_type=trustme.KeyType.RSA if kind == "RSA" else trustme.KeyType.ECDSA)
    files = PemFiles.write(tmp_path, leaf)
    text = key_text(leaf, form)
    files.key.write_bytes(text if label is None else re.sub(rb"(BEGIN|END) [A-Z ]+", rb"\1 " + label, text))
    hands_shaken(settings(**files.server_keys), trusting(ca))
    keys = {"brokerClientCertificateFilePath": files.certificate, "brokerClientKeyFilePath": files.key}
    # Web services of brokers, too, by Python's own ssl.
    assert check(tls_config(**files.broker_keys, **keys)) == []


@pytest.mark.parametrize(
    "around",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"Bag Attributes\n    friendlyName: a\nKey Attributes: <No Attributes>\n" + text + b"the end",
        lambda text: b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n" + text,
        lambda text: text.rstrip(b"\n"),
        lambda text: text + key_text(certificate("second"), PKCS8),
    ],
    ids=["BOM", "CRLF", "text", "EC PARAMETERS", "no last newline", "another key"],
)
def test_what_stands_around_a_block_does_not_count(files: PemFiles, around: Callable[[bytes], bytes]) -> None:
    for file in (files.certificate, files.key):
        file.write_bytes(around(file.read_bytes()))
    hands_shaken(settings(**files.server_keys), client_context())


def test_of_several_keys_the_first_counts_and_that_is_told(files: PemFiles) -> None:
    files.key.write_bytes(files.key.read_bytes() + key_text(certificate("second"), PKCS8))
    assert check(tls_config(**files.server_keys)) == [f"tlsKeyFilePath: '{files.key}' has 2 keys, the first counts"]


def test_key_and_certificate_may_be_in_one_file(files: PemFiles) -> None:
    files.key.write_bytes(files.key.read_bytes() + files.certificate.read_bytes())
    keys = files.server_keys | {"tlsCertificateFilePath": files.key}
    hands_shaken(settings(**keys), client_context())


def test_a_certificate_in_openssl_s_own_form_is_read(files: PemFiles) -> None:
    command = ["openssl", "x509", "-in", str(files.certificate), "-trustout", "-addtrust", "serverAuth"]
    files.certificate.write_bytes(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert b"TRUSTED" in files.certificate.read_bytes()
    hands_shaken(settings(**files.server_keys), client_context())


# --- chains ---------------------------------------------------------------------------------------


def grown(count: int) -> tuple[trustme.LeafCert, list[bytes]]:
    """Give a certificate `count` authorities below the first, and those between them, the nearest first."""
    at, between = authority(), list[bytes]()
    for _ in range(count):
        at = at.create_child_ca()
        between.insert(0, at.cert_pem.bytes())
    return at.issue_cert("localhost"), between


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (3, 0, 0, 2, 1, 1)])
def test_a_chain_is_shown_in_its_order_whatever_that_of_the_file_is(files: PemFiles, order: Sequence[int]) -> None:
    leaf, between = grown(3)
    parts = [leaf.cert_chain_pems[0].bytes(), *between]
    stranger = authority("second").cert_pem.bytes()
    files.certificate.write_bytes(stranger + b"".join(parts[at] for at in order))
    files.key.write_bytes(leaf.private_key_pem.bytes())
    # What nobody above has signed stays behind them.
    assert shown_by(settings(**files.server_keys)) == [
        ssl.PEM_cert_to_DER_cert(each.decode()) for each in (*parts, stranger)
    ]


def test_a_chain_that_rustls_would_not_accept_of_a_peer_is_shown(files: PemFiles) -> None:
    leaf, between = grown(8)
    files.certificate.write_bytes(b"".join([leaf.cert_chain_pems[0].bytes(), *between]))
    files.key.write_bytes(leaf.private_key_pem.bytes())
    hands_shaken(settings(**files.server_keys), client_context())


def test_a_certificate_without_a_subject_is_shown(files: PemFiles) -> None:
    own = self_signed(ec.generate_private_key(ec.SECP256R1()), subject="")
    PemFiles.write(files.key.parent, own)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=own.cert_chain_pems[0].bytes().decode())
    hands_shaken(settings(**files.server_keys), client)


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1()),
            ec.generate_private_key(ec.SECP521R1()), ed25519.Ed25519PrivateKey.generate()],
    ids=["RSA 2048", "P-384", "P-521", "Ed25519"],
)  # fmt: skip
def test_keys_that_sessions_have_are_used(files: PemFiles, key: CertificateIssuerPrivateKeyTypes) -> None:
    own = self_signed(key)
    PemFiles.write(files.key.parent, own)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=own.cert_chain_pems[0].bytes().decode())
    hands_shaken(settings(**files.server_keys), client)


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP224R1()),
            ec.generate_private_key(ec.SECP256K1()), dsa.generate_private_key(2048)],
    ids=["RSA 1024", "P-224", "secp256k1", "DSA"],
)  # fmt: skip
def test_a_key_that_sessions_do_not_have_is_named(files: PemFiles, key: CertificateIssuerPrivateKeyTypes) -> None:
    PemFiles.write(files.key.parent, self_signed(key))
    assert faults(**files.server_keys) == [
        f"command line: tlsKeyFilePath: got '{files.key}', expected an RSA key of 2,048 bits or more, or one of P-256, "
        "P-384, P-521 or Ed25519, and its certificate"
    ]
    keys = {"brokerClientCertificateFilePath": files.certificate, "brokerClientKeyFilePath": files.key}
    (fault,) = faults(**files.broker_keys, **keys)
    assert f"brokerClientKeyFilePath: got '{files.key}', expected an RSA key of 2,048" in fault


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (rsa.generate_private_key(65537, 1024), "an RSA key of less than 2,048 bits or more than 8,192"),
        (ed448.Ed448PrivateKey.generate(), "a key other than RSA, P-256, P-384, P-521 and Ed25519"),
        (ec.generate_private_key(ec.SECP224R1()), "a key other than RSA, P-256, P-384, P-521 and Ed25519"),
    ],
    ids=["RSA 1024", "Ed448", "P-224"],
)
def test_an_authority_that_proves_nothing_is_told_beside_others_and_one_that_is_none(
    files: PemFiles, key: CertificateIssuerPrivateKeyTypes, told: str
) -> None:
    odd = self_signed(key).cert_chain_pems[0].bytes()
    others: list[CertificateIssuerPrivateKeyTypes] = [
        rsa.generate_private_key(65537, 2048),
        ed25519.Ed25519PrivateKey.generate(),
        *(ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())),
    ]
    nothing = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    trust = {"tlsTrustCertsFilePath": files.trust}
    files.trust.write_bytes(b"".join(self_signed(other).cert_chain_pems[0].bytes() for other in others))
    assert check(tls_config(**files.server_keys, **trust)) == []
    files.trust.write_bytes(files.trust.read_bytes() + nothing + odd)
    assert check(tls_config(**files.server_keys, **trust)) == [
        f"tlsTrustCertsFilePath: '{files.trust}' has {told}, which proves nothing here"
    ]
    files.trust.write_bytes(odd)
    assert "brokerClientTrustCertsFilePath" in check(tls_config(**files.broker_keys))[0]


@pytest.mark.parametrize("form", [PKCS8, OLDER])
def test_an_encrypted_key_is_refused_with_the_command_that_decrypts_it(files: PemFiles, form: PrivateFormat) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret")))
    assert faults(**files.server_keys) == [
        f"command line: tlsKeyFilePath: got '{files.key}', expected a key that is not encrypted; "
        f"`openssl pkey -in {files.key} -out NEW` decrypts it"
    ]


def test_a_certificate_of_version_1_is_named(files: PemFiles, tmp_path: Path) -> None:
    request = tmp_path / "request.pem"
    for command in (
        f"req -new -key {files.key} -subj /CN=localhost -out {request}",
        f"x509 -req -in {request} -signkey {files.key} -out {files.certificate} -days 9",
    ):
        subprocess.run(["openssl", *command.split()], check=True, timeout=60, capture_output=True)
    (fault,) = faults(**files.server_keys)
    assert fault == (
        f"command line: tlsCertificateFilePath: got '{files.certificate}', expected a certificate of version 3 with a "
        "subjectAltName (`openssl x509 -req -extfile`)"
    )


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        (os.mkfifo, "a PEM file that can be read: not a regular file"),
        (_socket, "a PEM file that can be read: not a regular file"),
        (os.mkdir, "a PEM file that can be read: is a directory"),
        (lambda path: path.write_bytes(b" " * (LARGEST_FILE_BYTES + 1)), "larger than"),
        (lambda path: path.touch(), "a PEM file with"),
        (lambda path: path.write_bytes(b"\x30\x82" + bytes(500)), "a PEM file with"),
    ],
    ids=["FIFO", "socket", "directory", "large", "empty", "DER"],
)
@pytest.mark.parametrize("key", ["tlsCertificateFilePath", "tlsKeyFilePath", "tlsTrustCertsFilePath"])
def test_what_is_no_pem_file_is_named_with_its_key(
    files: PemFiles, tmp_path: Path, key: str, put: Callable[[Path], object], expected: str
) -> None:
    path = tmp_path / "broken"
    put(path)
    (fault,) = faults(**files.server_keys | {"tlsTrustCertsFilePath": files.trust, key: path})
    assert f"{key}: got '{path}', expected " in fault
    assert expected in fault


@pytest.mark.parametrize("which", ["certificate", "trust"])
def test_a_file_that_is_cut_in_its_last_certificate_is_refused(files: PemFiles, which: str) -> None:
    file: Path = getattr(files, which)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    (fault,) = faults(**files.server_keys, tlsTrustCertsFilePath=files.trust)
    assert f"got '{file}', expected a PEM file with certificates: a block is cut short" in fault


def test_what_is_behind_the_chain_of_the_certificate_must_be_certificates_too(files: PemFiles) -> None:
    junk = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    files.certificate.write_bytes(files.certificate.read_bytes() + junk)
    (fault,) = faults(**files.server_keys)
    assert f"tlsCertificateFilePath: got '{files.certificate}', expected a PEM file with certificates" in fault


def test_a_client_behind_too_many_authorities_is_refused(files: PemFiles) -> None:
    leaf, between = grown(7)
    demanding = {"tlsTrustCertsFilePath": files.trust, "tlsRequireTrustedClientCertOnConnect": "true"}
    shown = trustme.LeafCert(leaf.private_key_pem.bytes(), leaf.cert_chain_pems[0].bytes(), between)
    with pytest.raises(Refused, match="more than 6 stand between"):
        hands_shaken(settings(**files.server_keys, **demanding), client_context(own=shown))
