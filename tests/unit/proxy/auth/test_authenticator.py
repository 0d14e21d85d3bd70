import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from proxy.auth.failures import Reason, SettingFault
from proxy.auth.identity import AuthData, Authenticated
from proxy.auth.providers.http_header import credentials_of_header
from proxy.auth.roles import ANONYMIZERS, LONGEST_ROLE, is_role
from proxy.core.public_causes import PublicCause
from tests.support.auth.authentication import Doorman, watching
from tests.support.auth.tokens import NOW, SECRET, data_url, signed
from tests.support.configured import configured
from tests.support.proxies.counted import counted, counted_by

PACKAGE = "org.apache.pulsar.broker.authentication."
OTHER_SECRET = SECRET[::-1]
SIGNED = {"tokenSecretKey": data_url(SECRET)}
ISSUERS = {"openIDAllowedTokenIssuers": "https://issuer.example", "openIDAllowedAudiences": "pulsar"}


def certificate_of(*subject: tuple[str, str]) -> bytes:
    """Make one whose subject has these parts, in this order."""
    oids = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "OU": NameOID.ORGANIZATIONAL_UNIT_NAME}
    name = x509.Name([x509.NameAttribute(oids[kind], value) for kind, value in subject])
    key, noon = ec.generate_private_key(ec.SECP256R1()), datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, noon, noon + timedelta(days=1))
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)


def test_all_supported_providers_can_be_named() -> None:
    names = ("AuthenticationProviderTls", "oidc.AuthenticationProviderOpenID", "AuthenticationProviderToken")
    settings = configured(authenticationProviders=",".join(PACKAGE + n for n in names), **SIGNED, **ISSUERS)
    assert Doorman(settings).authenticator.methods == ("tls", "token")


@pytest.mark.parametrize(
    "name",
    [
        PACKAGE + "AuthenticationProviderSasl",
        PACKAGE + "AuthenticationProviderAthenz",
        "com.example.AuthenticationProviderToken",
        "sasl",
        "Token",
    ],
)
def test_provider_that_is_not_here_stops_the_start(name: str) -> None:
    with pytest.raises(SettingFault) as fault:
        Doorman(configured(authenticationProviders=name, **SIGNED))
    assert str(fault.value).startswith(f"authenticationProviders: got '{name}'")
    assert "openid" in str(fault.value)


def test_nobody_could_ever_get_in_stops_the_start() -> None:
    with pytest.raises(SettingFault, match="authenticationProviders: expected at least one"):
        Doorman(configured())


async def test_success_and_failure_are_counted_under_names_of_upstream() -> None:
    doorman = Doorman(configured(authenticationProviders="token", **SIGNED))
    await doorman.admits("token", signed({"sub": "a"}))
    await doorman.refuses("token", signed({"sub": "a", "exp": NOW - 1}))
    assert counted_by(doorman.counters, "pulsar_authentication_success") == {
        ("AuthenticationProviderToken", "token"): 1
    }
    assert counted_by(doorman.counters, "pulsar_authentication_failures") == {
        ("AuthenticationProviderToken", "token", "INVALID_TOKEN"): 1
    }
    assert counted(doorman.counters, "pulsar_expired_token") == 1


async def test_second_provider_of_a_method_is_asked_when_the_first_refuses() -> None:
    doorman = Doorman(configured(authenticationProviders="openid,token", **SIGNED, **ISSUERS))
    assert (await doorman.admits("token", signed({"sub": "a"}))).role == "a"
    # The first one's refusal was no failure of the client.
    assert counted_by(doorman.counters, "pulsar_authentication_failures") == {}
    refusal = await doorman.refuses("token", b"x.y.z")
    assert "openid" in str(refusal)
    assert "token:" in str(refusal)
    assert len(counted_by(doorman.counters, "pulsar_authentication_failures")) == 2


async def test_unknown_methods_are_anonymous_if_a_key_says_so() -> None:
    keys = configured(
        authenticationProviders="token", anonymousUserRole="guest", anonymousUserRoleForUnknownMethods="true", **SIGNED
    )
    assert await Doorman(keys).admits("sasl", b"") == Authenticated("guest", anonymous=True)
    assert (await Doorman(keys).refuses("token", b"x.y.z")).reason is Reason.INVALID_TOKEN


async def test_without_an_anonymous_role_an_unknown_method_is_refused_and_makes_no_label() -> None:
    doorman = Doorman(configured(authenticationProviders="token", **SIGNED))
    assert (await doorman.refuses("made up", b"")).reason is Reason.NO_PROVIDER
    assert (await doorman.refuses("", b"")).public is PublicCause.REQUIRED
    assert counted_by(doorman.counters, "pulsar_authentication_failures") == {
        ("AuthenticationService", "unknown", "NO_PROVIDER"): 2
    }


async def test_of_several_common_names_the_last_in_the_certificate_is_the_role() -> None:
    doorman = Doorman(configured(authenticationProviders="tls"))
    several = certificate_of(("CN", "people"), ("O", "example"), ("CN", "alice"), ("OU", "bob"))
    assert await doorman.admits("tls", b"", several) == Authenticated("alice")
    # None of the others steps in for one that cannot be a role.
    refusal = await doorman.refuses("tls", b"", certificate_of(("CN", "alice"), ("CN", "two\nlines")))
    assert refusal.reason is Reason.INVALID_CN


def test_only_printable_text_that_no_header_changes_is_a_role() -> None:
    assert all(is_role(role) for role in ("admin", "ad min", "\u00fcber", "a" * LONGEST_ROLE))
    no_roles = ("", " ", " admin", "admin\u3000", "a\nb", "a" * (LONGEST_ROLE + 1), None, 7, b"admin", "a\udcff")
    assert not any(is_role(value) for value in no_roles)


async def test_client_without_a_usable_certificate_is_refused() -> None:
    doorman = Doorman(configured(authenticationProviders="tls"))
    assert (await doorman.refuses("tls", b"", None)).reason is Reason.INVALID_CERTS
    assert (await doorman.refuses("tls", b"", b"\x30\x03\x02\x01\x01")).reason is Reason.INVALID_CERTS
    assert (await doorman.refuses("tls", b"", certificate_of(("O", "example")))).reason is Reason.INVALID_CN
    assert (await doorman.refuses("tls", b"", certificate_of(("CN", "two\nlines")))).reason is Reason.INVALID_CN


def test_mounted_secret_that_is_swapped_by_its_link_is_in_force_soon(tmp_path: Path) -> None:
    for name, content in (("one", SECRET), ("two", OTHER_SECRET)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_bytes(content)
        os.utime(tmp_path / name / "secret", (1, 1))
    link, swapped = tmp_path / "data", tmp_path / "data_tmp"
    link.symlink_to("one")

    @watching(configured(authenticationProviders="token", tokenSecretKey=f"file://{link}/secret"))
    async def _(doorman: Doorman) -> None:
        swapped.symlink_to("two")
        swapped.rename(link)
        await doorman.reads_files()
        await doorman.refuses("token", signed({"sub": "a"}))


@pytest.mark.parametrize("broken", [b"short", None])
def test_broken_key_file_keeps_the_old_key_and_is_told_once(tmp_path: Path, broken: bytes | None) -> None:
    path = tmp_path / "secret.key"
    path.write_bytes(SECRET)

    @watching(configured(authenticationProviders="token", tokenSecretKey=path))
    async def _(doorman: Doorman) -> None:
        path.unlink() if broken is None else path.write_bytes(broken)
        await doorman.reads_files("refused")
        await asyncio.sleep(5)
        assert counted_by(doorman.counters, "authentication_file_reloads") == {"applied": 0, "refused": 1}
        assert (await doorman.admits("token", signed({"sub": "a"}))).role == "a"
        assert doorman.lines[0]["key"] == "tokenSecretKey"
        path.write_bytes(OTHER_SECRET)
        await doorman.reads_files()
        await doorman.refuses("token", signed({"sub": "a"}))


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("none", "alice"),
        ("redacted", "[REDACTED]"),
        ("hash:sha256", "SHA-256:K9gGyX8OAK8aH8Myj6djqSaXI8jbj6xPk69x2xhtbpA="),
        ("hash:md5", "MD5:Y4TishhLy/WOzPEMp6ZWPA=="),
    ],
)
def test_roles_are_written_as_upstream_writes_them(kind: str, written: str) -> None:
    assert ANONYMIZERS[kind]("alice") == written


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Bearer a.b.c", AuthData("token", b"a.b.c")),
        ("bearer  a.b.c", AuthData("token", b"a.b.c")),
        ("Bearer a. b.c", AuthData("token", b"a. b.c")),
        ("Basic IGFsaWNlOnNlc2FtZSA=", AuthData("basic", b" alice:sesame ")),
        ("Basic !!", None),
        ("Bearer ", None),
        ("Bearer a.b.c\u00a0", None),
        ("", None),
        ("Bearer \u20ac", None),
        ("Bearer " + "a" * 60_000, AuthData("token", b"a" * 60_000)),
        ("Bearer " + "a" * 70_000, None),
    ],
)
def test_http_header_becomes_the_data_of_connect(value: str, found: AuthData | None) -> None:
    assert credentials_of_header(value) == found
