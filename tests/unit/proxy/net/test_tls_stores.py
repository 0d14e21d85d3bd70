"""Keys and authorities from stores of PKCS#12, and how each fault of a store is named."""

import os
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import NoEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from proxy.core.counters import Counters
from proxy.core.files import LARGEST_FILE_BYTES
from proxy.core.log import open_log
from proxy.net.tls.expiry import der_element
from proxy.net.tls.files import TlsFiles, check
from tests.support import auth
from tests.support.auth.tls import (
    PemFiles,
    Refused,
    authority,
    certificate,
    client_context,
    hands_shaken,
    server_context,
)
from tests.support.auth.tls_settings import (
    PASSWORD,
    broker_store_keys,
    faults,
    self_signed,
    settings,
    shown_by,
    store_keys,
    tls_config,
    write_store,
)
from tests.support.configured import refusal

# Made by keytool of JDK 17: a store with two keys, that of localhost first, and one that trusts both certificates.
JAVA_KEYS, JAVA_TRUST = (Path(auth.__path__[0]) / "java_stores" / name for name in ("keys.p12", "trust.p12"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "own.p12", certificate())


@pytest.fixture
def trust(tmp_path: Path) -> Path:
    return write_store(tmp_path / "trust.p12", trusted=(authority("second"), authority("first")))


@pytest.mark.parametrize("port", ["servicePortTls", "webServicePortTls"])
def test_a_port_shows_the_certificate_of_its_store_and_the_chain(tmp_path: Path, port: str) -> None:
    middle = authority("first").create_child_ca()
    path = write_store(tmp_path / "own.p12", middle.issue_cert("localhost"))
    keys = {key: value for key, value in store_keys(path).items() if key != "servicePortTls"}
    hands_shaken(settings(**keys, **{port: 0}), client_context())


def test_clients_are_trusted_by_the_store_of_authorities(store: Path, trust: Path) -> None:
    demanding = settings(**store_keys(store, trust), tlsRequireTrustedClientCertOnConnect="true")
    for of in ("first", "second"):
        hands_shaken(demanding, client_context(own=certificate(of)))
    with pytest.raises(Refused, match="nobody trusted has signed it"):
        hands_shaken(demanding, client_context(own=certificate("third")))


def test_brokers_are_trusted_by_the_store_and_shown_the_certificate_of_the_other(store: Path, trust: Path) -> None:
    calling = settings(**broker_store_keys(trust, store))
    _, broker = hands_shaken(calling, server_context(certificate("second"), "first"), "localhost")
    assert broker.getpeercert()
    with pytest.raises(Refused, match="nobody trusted has signed it"):
        hands_shaken(calling, server_context(certificate("third")), "localhost")


def test_a_store_of_authorities_needs_no_key_beside_it(trust: Path) -> None:
    hands_shaken(settings(**broker_store_keys(trust)), server_context(), "localhost")


def test_stores_of_java_are_read_and_of_several_keys_the_first_counts() -> None:
    keys = store_keys(JAVA_KEYS, JAVA_TRUST)
    (shown,) = shown_by(settings(**store_keys(JAVA_KEYS)))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=shown)
    hands_shaken(settings(**keys), client)
    assert check(tls_config(**keys, webServicePortTls=0)) == [
        f"tlsKeyStore: '{JAVA_KEYS}' has 2 keys, the first counts"
    ]


def _export(files: PemFiles, path: Path, *options: str) -> None:
    command = ["openssl", "pkcs12", "-export", "-in", str(files.certificate), "-inkey", str(files.key)]
    subprocess.run([*command, "-out", path, *options], check=True, timeout=60)


@pytest.mark.parametrize("options", [(), ("-legacy",), ("-nomac",), ("-keypbe", "NONE", "-certpbe", "NONE")])
def test_stores_of_openssl_are_read_in_all_their_forms(tmp_path: Path, options: tuple[str, ...]) -> None:
    files, path = PemFiles.write(tmp_path), tmp_path / "own.p12"
    _export(files, path, "-passout", f"pass:{PASSWORD}", *options)
    hands_shaken(settings(**store_keys(path)), client_context())


def test_a_store_without_a_password_is_read(tmp_path: Path) -> None:
    files, path = PemFiles.write(tmp_path), tmp_path / "own.p12"
    _export(files, path, "-passout", "pass:")
    hands_shaken(settings(**store_keys(path) | {"tlsKeyStorePassword": ""}), client_context())


# --- faults ---------------------------------------------------------------------------------------


def test_a_store_of_java_s_own_type_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "a store.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    converts = (
        f"`keytool -importkeystore -srckeystore '{path}' -destkeystore '{path}'.p12 -deststoretype PKCS12` converts a "
        "store of another type"
    )
    keys = store_keys(path)
    assert faults(**keys | {"tlsKeyStoreType": "JKS"}) == [
        f"command line: tlsKeyStoreType: got 'JKS', expected PKCS12; {converts}"
    ]
    del keys["tlsKeyStoreType"]
    assert "tlsKeyStoreType: got 'JKS'" in faults(**keys)[0]
    for kind in ("pkcs12", "PKCS12"):
        assert faults(**keys | {"tlsKeyStoreType": kind}) == [
            f"command line: tlsKeyStore: got '{path}', expected a PKCS12 store, not one of JKS; {converts}"
        ]


@pytest.mark.parametrize("side", ["tls", "brokerClientTls"])
@pytest.mark.parametrize("kind", ["KeyStore", "TrustStore"])
def test_a_wrong_password_is_named_by_its_key_and_not_told(store: Path, trust: Path, side: str, kind: str) -> None:
    keys = store_keys(store, trust) | broker_store_keys(trust, store) | {f"{side}{kind}Password": "wrong-one"}
    path = store if kind == "KeyStore" else trust
    assert faults(**keys) == [
        f"command line: {side}{kind}Password: got one that does not open '{path}', expected the password of that store"
    ]


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.unlink(), "a PKCS12 store that can be read: no such file"),
        (lambda path: path.write_bytes(b""), "a PKCS12 store that is whole"),
        (lambda path: os.truncate(path, 700), "a PKCS12 store that is whole"),
        (lambda path: path.write_bytes(b"-----BEGIN CERTIFICATE-----"), "a PKCS12 store that is whole"),
        (lambda path: os.truncate(path, LARGEST_FILE_BYTES + 1), "larger than"),
        (_directory, "a PKCS12 store that can be read: is a directory"),
        (_fifo, "a PKCS12 store that can be read: not a regular file"),
    ],
)
@pytest.mark.parametrize("kind", ["KeyStore", "TrustStore"])
def test_a_file_that_is_no_store_is_named_with_its_key(
    store: Path, trust: Path, kind: str, damage: Callable[[Path], object], expected: str
) -> None:
    path = store if kind == "KeyStore" else trust
    damage(path)
    (fault,) = faults(**store_keys(store, trust))
    assert f"tls{kind}: got '{path}'" in fault
    assert expected in fault


def test_a_store_with_a_certificate_of_no_known_version_is_named(tmp_path: Path) -> None:
    leaf, path = certificate(), tmp_path / "odd.p12"
    key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
    shown = x509.load_pem_x509_certificate(leaf.cert_chain_pems[0].bytes())
    store = serialize_key_and_certificates(b"a name", key, shown, None, NoEncryption())  # type: ignore[arg-type]
    # Without the check of the whole, which comes last.
    inside, _ = der_element(store)
    check_begins = len(inside) - len(der_element(der_element(inside)[1])[1])
    odd = inside[:check_begins].replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020105"))
    path.write_bytes(b"\x30\x82" + len(odd).to_bytes(2, "big") + odd)
    (fault,) = faults(**store_keys(path))
    assert f"tlsKeyStore: got '{path}', expected a PKCS12 store that is whole: 5 is not" in fault


def test_a_store_that_lacks_what_it_is_for_is_named(tmp_path: Path, store: Path, trust: Path) -> None:
    assert faults(**store_keys(trust)) == [
        f"command line: tlsKeyStore: got '{trust}', expected a PKCS12 store with a private key and its certificate"
    ]
    assert faults(**store_keys(store, store)) == [
        f"command line: tlsTrustStore: got '{store}', expected a PKCS12 store with trusted certificates, and no "
        "private key"
    ]
    empty = tmp_path / "empty.p12"
    empty.write_bytes(bytes.fromhex("3016020103301106092a864886f70d010701a00404023000"))
    (fault,) = faults(**store_keys(store, empty))
    assert f"tlsTrustStore: got '{empty}', expected what a session can use: no certificate" in fault
    (fault,) = faults(**store_keys(empty))
    assert f"tlsKeyStore: got '{empty}', expected a PKCS12 store with a private key" in fault
    (fault,) = faults(servicePortTls=0, tlsEnabledWithKeyStore="true")
    assert fault == "default: tlsKeyStore: got nothing, expected a PKCS12 store"
    demanding = {"tlsRequireTrustedClientCertOnConnect": "true"}
    assert "tlsTrustStore: got nothing, expected a PKCS12 store" in faults(**store_keys(store), **demanding)[0]


def test_files_that_stores_replace_and_stores_without_effect_are_warned_of(store: Path, trust: Path) -> None:
    keys = {**store_keys(store), "tlsKeyFilePath": "/x", "brokerClientTlsTrustStore": trust}
    told = {(each.key, each.text) for each in tls_config(**keys).warnings}
    assert {
        ("tlsKeyFilePath", "has no effect with tlsEnabledWithKeyStore=true"),
        ("brokerClientTlsTrustStore", "has no effect with brokerClientTlsEnabledWithKeyStore=false"),
    } <= told


def test_stores_towards_brokers_do_not_go_with_a_topic_of_events(trust: Path) -> None:
    topic = {"eventLogTopic": "persistent://a/b/c", "eventLogTopicServiceURL": "pulsar+ssl://elsewhere:6651"}
    (problem,) = refusal(**broker_store_keys(trust), **topic, brokerServiceURLTLS="pulsar+ssl://broker").problems
    assert problem.key == "brokerClientTlsEnabledWithKeyStore"
    assert problem.expected == "false, and PEM files, with eventLogTopic: pulsar-client reads no stores"


async def test_a_changed_store_is_in_force_and_a_broken_one_is_not(tmp_path: Path, store: Path) -> None:
    loaded = TlsFiles(tls_config(**store_keys(store)), Counters(), open_log("error"))
    os.replace(write_store(tmp_path / "new.p12", certificate("second")), store)
    assert await loaded.refresh()
    hands_shaken(loaded.server(), client_context("second"))
    for size in (700, 0):
        os.truncate(store, size)
        assert not await loaded.refresh()
        hands_shaken(loaded.server(), client_context("second"))


def test_a_store_s_key_that_sessions_cannot_use_is_named(tmp_path: Path) -> None:
    path = write_store(tmp_path / "own.p12", self_signed(rsa.generate_private_key(65537, 1024)))
    (fault,) = faults(**store_keys(path))
    assert f"tlsKeyStore: got '{path}', expected an RSA key of 2,048 bits or more" in fault
