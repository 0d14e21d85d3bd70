"""Certificates that their authority has revoked are refused, on both sides of the proxy, from the next reload on."""

import ssl
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from protocol.pb import PulsarApi_pb2 as pb
from proxy.config.config import ConfigError
from tests.support.auth.revocation import revocation_list
from tests.support.auth.tls import (
    HOST,
    PemFiles,
    TlsClient,
    authority,
    certificate,
    client_context,
    server_context,
    tls_client,
)
from tests.support.auth.tls_settings import self_signed
from tests.support.clients.async_client import AsyncClient, Closed
from tests.support.proxies.counted import counted
from tests.support.proxies.proxy_under_test import TOPIC, Stage, staged


def demanding(files: PemFiles, lists: Path) -> dict[str, Any]:
    return files.server_keys | {
        "tlsTrustCertsFilePath": files.trust,
        "tlsRequireTrustedClientCertOnConnect": "true",
        "tlsCertificateRevocationListFilePath": lists,
    }


def with_authority(label: str) -> bytes:
    """Return a list, and before it another authority's certificate as a block of that name."""
    return authority("second").cert_pem.bytes().replace(b" CERTIFICATE", b" " + label.encode()) + revocation_list()


def key_identifier(identifier: bytes) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier(identifier, None, None)


def scope(url: str) -> x509.IssuingDistributionPoint:
    names = [x509.UniformResourceIdentifier(url)]
    return x509.IssuingDistributionPoint(names, None, False, False, None, False, False)


def of_intermediates(first: Sequence[x509.ExtensionType], second: Sequence[x509.ExtensionType]) -> bytes:
    """Return lists of two keys with one name, none of which is trusted, the second of them the newer."""
    one = revocation_list("third", extensions=first)
    return one + revocation_list("third", signed_by="fourth", age=timedelta(days=1), extensions=second)


def namesake(of: str) -> bytes:
    """Return a certificate with the name of the first authority and the key of this one."""
    key = serialization.load_pem_private_key(authority(of).private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    name = x509.load_pem_x509_certificate(authority().cert_pem.bytes()).subject.rfc4514_string()
    return self_signed(key, name).cert_chain_pems[0].bytes()


async def refused(stage: Stage, context: ssl.SSLContext) -> None:
    client = await tls_client(stage, context)
    with pytest.raises((Closed, ssl.SSLError)):
        await client.connect()


@pytest.mark.threat("revoked-certificate")
async def test_a_certificate_that_is_revoked_later_is_refused_after_a_reload(files: PemFiles, tmp_path: Path) -> None:
    leaf, lists = authority().issue_cert("somebody"), tmp_path / "lists.pem"
    lists.write_bytes(revocation_list())
    async with staged(**demanding(files, lists)) as stage:
        context = client_context(own=leaf)
        before = await tls_client(stage, context)
        await before.connect()
        lists.write_bytes(revocation_list(revoked=[leaf]))
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: counted(stage.proxy.counters, "tls_reloads", "applied") == 1, "the new list")
        await refused(stage, context)
        assert counted(stage.proxy.counters, "tls_handshakes", "client", "certificate") == 1
        assert (
            0
            < counted(stage.proxy.counters, "tls_revocation_list_expiration_timestamp_seconds", "server") - time.time()
            <= 86_400
        )
        # Like all changes of certificates: connections that are there stay.
        await before.ping()


@pytest.mark.threat("revoked-certificate")
@pytest.mark.parametrize("age", [1, 7, 8])
async def test_a_list_that_was_added_to_the_file_counts_unless_it_is_the_older_one(
    files: PemFiles, tmp_path: Path, age: int
) -> None:
    leaf, lists = authority().issue_cert("somebody"), tmp_path / "lists.pem"
    added = revocation_list(revoked=[leaf], age=timedelta(days=age))
    lists.write_bytes(revocation_list() + added)
    async with staged(**demanding(files, lists)) as stage:
        context = client_context(own=leaf)
        if age <= 7:
            await refused(stage, context)
        else:
            await (await tls_client(stage, context)).connect()


@pytest.mark.parametrize(
    "added",
    [
        # The form of an identifier changes with the tool that makes the list.
        lambda: revocation_list(extensions=[key_identifier(b"new form")], age=timedelta(days=1)),
        lambda: revocation_list(signed_by="second", age=timedelta(days=8), extensions=[scope("http://crl/2")]),
        lambda: of_intermediates([], []),
        lambda: of_intermediates([key_identifier(b"one")], []),
        lambda: of_intermediates([key_identifier(b"one")], [key_identifier(b"one")]),
    ],
    ids=["new form of the identifier", "scope", "no identifiers", "one identifier", "one key as its lists say"],
)
async def test_lists_of_one_name_are_taken_if_they_may_be_of_one_key_or_have_a_scope_each(
    files: PemFiles, tmp_path: Path, added: Callable[[], bytes]
) -> None:
    leaf, lists = authority().issue_cert("somebody"), tmp_path / "lists.pem"
    own = revocation_list(extensions=[key_identifier(b"form")])
    lists.write_bytes(own + added())
    # Another certificate of the same key, and a key before it of the same name, which has no list.
    files.trust.write_bytes(files.trust.read_bytes() + namesake("first") + namesake("fifth"))
    async with staged(**demanding(files, lists)) as stage:
        await (await tls_client(stage, client_context(own=leaf))).connect()


@pytest.mark.parametrize(
    "later",
    [
        lambda leaf: revocation_list(revoked=[leaf], valid=timedelta(days=-1)),
        lambda _: revocation_list() + revocation_list(signed_by="second", age=timedelta(days=1)),
    ],
    ids=["expired", "of two keys"],
)
async def test_a_list_that_is_a_fault_is_not_loaded_and_the_old_one_stays_in_force(
    files: PemFiles, tmp_path: Path, later: Callable[[trustme.LeafCert], bytes]
) -> None:
    leaf, lists = authority().issue_cert("somebody"), tmp_path / "lists.pem"
    lists.write_bytes(revocation_list())
    async with staged(**demanding(files, lists)) as stage:
        lists.write_bytes(later(leaf))
        stage.proxy.files_may_have_changed()
        await stage.until(lambda: counted(stage.proxy.counters, "tls_reloads", "refused") == 1, "a refusal")
        await (await tls_client(stage, client_context(own=leaf))).connect()


async def test_a_broker_whose_certificate_is_revoked_is_refused(files: PemFiles, tmp_path: Path) -> None:
    own = certificate()
    lists = tmp_path / "lists.pem"
    keys = files.broker_keys | {"brokerClientCertificateRevocationListFilePath": lists}
    for revoked, expected in (
        ([], pb.CommandLookupTopicResponse.Connect),
        ([own], pb.CommandLookupTopicResponse.Failed),
    ):
        lists.write_bytes(revocation_list(revoked=revoked))
        async with staged(broker_tls=server_context(own), **keys) as stage:
            client = await stage.connected()
            assert (await client.lookup(TOPIC)).response == expected


@pytest.mark.threat("certificate-among-crls")
@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (lambda: revocation_list(valid=timedelta(days=-1)), "with a list that expired at"),
        (lambda: revocation_list(numbered=False), "openssl ca -gencrl -crlexts crl_ext"),
        (lambda: b"", "a PEM file with certificate revocation lists"),
        (
            lambda: b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
            "a PEM file with certificate revocation lists",
        ),
        (lambda: revocation_list()[:-30], "a PEM file with certificate revocation lists"),
        (lambda: revocation_list() + revocation_list(signed_by="second"), "that two keys have signed"),
        (lambda: revocation_list(signed_by="second", age=timedelta(days=8)) + revocation_list(), "O=first"),
        (
            lambda: of_intermediates([key_identifier(b"one")], [key_identifier(b"two")]),
            "rename an authority, or leave out the list that nobody needs",
        ),
        (lambda: with_authority("CERTIFICATE"), "with a block 'CERTIFICATE'"),
        # OpenSSL trusts what these hold like any certificate.
        (lambda: with_authority("X509 CERTIFICATE"), "with a block 'X509 CERTIFICATE'"),
        (lambda: with_authority("TRUSTED CERTIFICATE"), "with a block 'TRUSTED CERTIFICATE'"),
    ],
    ids=[
        "expired",
        "without extensions",
        "empty",
        "garbage",
        "truncated",
        "a newer list of another key",
        "an older one",
        "another key identifier",
        "certificate",
        "old name",
        "trusted",
    ],
)
async def test_what_is_no_list_in_force_is_a_fault_of_its_key(
    files: PemFiles, tmp_path: Path, contents: Any, says: str
) -> None:
    lists = tmp_path / "lists.pem"
    lists.write_bytes(contents())
    with pytest.raises(ConfigError) as caught:
        async with staged(**demanding(files, lists)):
            pass
    text = "; ".join(map(str, caught.value.problems))
    assert "tlsCertificateRevocationListFilePath" in text
    assert says in text


async def test_a_list_without_authorities_is_a_fault(files: PemFiles, tmp_path: Path) -> None:
    lists = tmp_path / "lists.pem"
    lists.write_bytes(revocation_list())
    with pytest.raises(ConfigError, match="tlsTrustCertsFilePath"):
        async with staged(**files.server_keys, tlsCertificateRevocationListFilePath=lists):
            pass


@pytest.mark.threat("session-outlives-certificate")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_comes_back_is_checked_again(
    files: PemFiles, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    lists = tmp_path / "lists.pem"
    lists.write_bytes(revocation_list())
    context = client_context(own=authority().issue_cert("somebody"))
    context.minimum_version = context.maximum_version = version
    async with staged(**demanding(files, lists)) as stage:
        session = None
        for _ in range(3):
            client = TlsClient((await AsyncClient.open(stage.proxy.tls_port)).sock, context)
            stage.clients.append(client)
            ends = client.sealer
            ends.tls = context.wrap_bio(ends.incoming, ends.outgoing, server_hostname=HOST, session=session)
            await client.shake()
            await client.connect()
            assert not ends.tls.session_reused
            session = ends.tls.session
