import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import OctKey

from proxy.auth.failures import CredentialsRefused, Reason, SettingFault
from proxy.auth.identity import Authenticated
from proxy.auth.providers.token import TokenProvider
from proxy.config.config import Config
from tests.support.auth.authentication import at_once
from tests.support.auth.tokens import (
    NOW,
    SECRET,
    data_url,
    der,
    ec_key,
    key_for,
    pem,
    rsa_key,
    signed,
    signed_bytes,
    weak_rsa_key,
)
from tests.support.configured import configured

P_224 = data_url(
    ec.generate_private_key(ec.SECP224R1()).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)
OTHER_CURVE = data_url(der(ec_key("secp256k1")))


def secret_provider(**settings: Any) -> TokenProvider:
    return TokenProvider(configured(tokenSecretKey=data_url(SECRET), **settings), lambda: NOW)


def public_provider(algorithm: str, alg_key: str = "") -> TokenProvider:
    key = data_url(der(key_for(algorithm)))
    return TokenProvider(configured(tokenPublicKey=key, tokenPublicAlg=alg_key or algorithm), lambda: NOW)


def admitted(provider: TokenProvider, token: bytes) -> Authenticated:
    return at_once(provider.authenticate(token, None, "192.0.2.1"))


def refused(provider: TokenProvider, token: bytes) -> CredentialsRefused:
    with pytest.raises(CredentialsRefused) as refusal:
        at_once(provider.authenticate(token, None, "192.0.2.1"))
    return refusal.value


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_token_of_the_secret_key_is_believed(algorithm: str) -> None:
    assert admitted(secret_provider(), signed({"sub": "alice"}, algorithm)) == Authenticated("alice", None)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"])
def test_token_of_the_public_key_is_believed(algorithm: str) -> None:
    assert admitted(public_provider(algorithm), signed({"sub": "alice"}, algorithm)).role == "alice"


def test_token_of_another_key_is_refused() -> None:
    assert "not signed" in str(refused(secret_provider(), signed({"sub": "a"}, key=OctKey.import_key(b"x" * 64))))
    assert refused(public_provider("RS256"), signed({"sub": "a"}, "RS256", rsa_key(1)))
    assert refused(public_provider("ES256"), signed({"sub": "a"}, "ES256", ec_key("P-256", 1)))


GOOD = {"HS256": signed({"sub": "alice"}), "ES256": signed({"sub": "alice"}, "ES256")}


@given(st.sampled_from(sorted(GOOD)), st.integers(min_value=0), st.integers(min_value=0, max_value=255))
def test_any_changed_letter_spoils_a_token(algorithm: str, place: int, letter: int) -> None:
    provider = secret_provider() if algorithm == "HS256" else public_provider(algorithm)
    token = bytearray(GOOD[algorithm])
    place %= len(token)
    if token[place] == letter:
        return
    token[place] = letter
    refused(provider, bytes(token))


@pytest.mark.parametrize("algorithm", sorted(GOOD))
def test_a_token_has_one_spelling(algorithm: str) -> None:
    provider = secret_provider() if algorithm == "HS256" else public_provider(algorithm)
    token = GOOD[algorithm]
    for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/":
        if letter != token[-1]:
            refused(provider, token[:-1] + bytes([letter]))
    for other in (token + b"=", token + b"\n", b" " + token, token.replace(b"-", b"+").replace(b"_", b"/") + b"=="):
        refused(provider, other)


def test_expiry_is_handed_out_and_obeyed() -> None:
    assert admitted(secret_provider(), signed({"sub": "a", "exp": NOW + 1})).expires_at == NOW + 1
    late = refused(secret_provider(), signed({"sub": "a", "exp": NOW}))
    assert (late.reason, late.expired) == (Reason.INVALID_TOKEN, True)


def test_clock_skew_prolongs_both_ends() -> None:
    provider = secret_provider(tokenAllowedClockSkewSeconds=30)
    assert admitted(provider, signed({"sub": "a", "exp": NOW - 29, "nbf": NOW + 30})).expires_at == NOW + 1
    assert refused(provider, signed({"sub": "a", "exp": NOW - 30})).expired
    assert not refused(provider, signed({"sub": "a", "nbf": NOW + 31})).expired


@pytest.mark.parametrize("exp", ['"9999999999"', "true", "[]", "{}", "1e999", "NaN"])
def test_expiry_that_is_no_time_is_refused(exp: str) -> None:
    token = signed_bytes(f'{{"sub":"a","exp":{exp}}}'.encode())
    assert refused(secret_provider(), token).reason is Reason.INVALID_TOKEN


@pytest.mark.parametrize("audience", ["there", ["there"], [], None, 5, {"here": 1}, [["here"]]])
def test_token_for_this_audience_is_believed_and_for_another_refused(audience: object) -> None:
    provider = secret_provider(tokenAudienceClaim="aud", tokenAudience="here")
    for right in ("here", ["there", "here"]):
        assert admitted(provider, signed({"sub": "a", "aud": right})).role == "a"
    assert refused(provider, signed({"sub": "a", "aud": audience})).reason is Reason.INVALID_AUDIENCES


@pytest.mark.parametrize(("claims", "role"), [({"roles": "r"}, "r"), ({"roles": ["first", "second"]}, "first")])
def test_role_comes_from_the_claim_that_is_asked_for(claims: dict[str, object], role: str) -> None:
    assert admitted(secret_provider(tokenAuthClaim="roles"), signed({"sub": "no", **claims})).role == role


@pytest.mark.parametrize("role", ["", None, [], [5], 5, "a\nb", "a\x00", "x" * 1025, {"a": 1}, "\u202e"])
def test_what_cannot_be_a_role_is_refused(role: object) -> None:
    assert refused(secret_provider(), signed({"sub": role})).reason is Reason.INVALID_TOKEN


@pytest.mark.parametrize("header", [{"crit": ["b64"]}, {"b64": False}, {"kid": 5}, {"kid": "k" * 513}])
def test_header_with_demands_is_refused(header: dict[str, Any]) -> None:
    assert refused(secret_provider(), signed({"sub": "a"}, **header)).reason is Reason.INVALID_TOKEN


def test_empty_and_huge_tokens_are_refused_unread() -> None:
    assert refused(secret_provider(), b"").reason is Reason.INVALID_AUTH_DATA
    huge = refused(secret_provider(), signed({"sub": "a", "fill": "x" * 50_000}))
    assert "at most 65536" in str(huge)


def test_refusal_shows_nothing_of_the_token() -> None:
    token = signed({"sub": "alice-the-great", "exp": 5})
    assert "alice" not in str(refused(secret_provider(), token))


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}"])
@pytest.mark.parametrize("spelling", [der, pem])
def test_key_is_read_from_a_file(tmp_path: Path, form: str, spelling: Any) -> None:
    path = tmp_path / "public key"
    path.write_bytes(spelling(key_for("RS256")))
    where = form.format(path if "file" not in form else str(path).replace(" ", "%20"))
    provider = TokenProvider(configured(tokenPublicKey=where, tokenPublicAlg="rs256"), lambda: NOW)
    assert admitted(provider, signed({"sub": "a"}, "RS256")).role == "a"


@pytest.mark.parametrize(
    "text",
    [
        base64.b64encode(SECRET).decode(),
        base64.urlsafe_b64encode(SECRET).decode().rstrip("="),
        data_url(SECRET),
        "data:application/octet-stream;base64," + base64.b64encode(SECRET).decode(),
        "data:," + "".join(f"%{byte:02x}" for byte in SECRET),
    ],
)
def test_key_may_stand_in_the_setting_itself(text: str) -> None:
    provider = TokenProvider(configured(tokenSecretKey=text), lambda: NOW)
    assert admitted(provider, signed({"sub": "a"})).role == "a"


def test_short_secret_signs_no_long_digest() -> None:
    provider = TokenProvider(configured(tokenSecretKey=data_url(SECRET[:32])), lambda: NOW)
    key = OctKey.import_key(SECRET[:32])
    assert admitted(provider, signed({"sub": "a"}, "HS256", key)).role == "a"
    assert refused(provider, signed({"sub": "a"}, "HS512", key)).reason is Reason.INVALID_TOKEN


@pytest.mark.parametrize(
    ("settings", "key", "says"),
    [
        (configured(), "tokenSecretKey", "got neither"),
        (configured(tokenSecretKey="/no/such/file/anywhere"), "tokenSecretKey", "cannot read /no/such/file/anywhere"),
        (configured(tokenSecretKey="file://host/key"), "tokenSecretKey", "file:///path"),
        (configured(tokenSecretKey="not base64!"), "tokenSecretKey", "neither an existing file nor base64"),
        (configured(tokenSecretKey="data:;base64,???"), "tokenSecretKey", "not base64"),
        (configured(tokenSecretKey=data_url(b"short")), "tokenSecretKey", "5 bytes, expected at least 32"),
        (configured(tokenSecretKey=data_url(pem(key_for("RS256")))), "tokenSecretKey", "tokenPublicKey"),
        (configured(tokenPublicKey=data_url(b"nonsense")), "tokenPublicKey", "DER or PEM"),
        (configured(tokenPublicKey=data_url(der(ec_key()))), "tokenPublicKey", "tokenPublicAlg"),
        (configured(tokenPublicKey=OTHER_CURVE, tokenPublicAlg="es256"), "tokenPublicKey", "P-256"),
        (
            configured(tokenPublicKey=P_224, tokenPublicAlg="es256"),
            "tokenPublicKey",
            "secp224r1, expected one of P-256",
        ),
        (configured(tokenPublicKey=data_url(der(weak_rsa_key()))), "tokenPublicKey", "1024 bits"),
        (configured(tokenSecretKey=data_url(SECRET), tokenAudienceClaim="aud"), "tokenAudience", "tokenAudienceClaim"),
        (configured(tokenSecretKey=data_url(SECRET), tokenAudience="me"), "tokenAudienceClaim", "tokenAudience"),
    ],
)
def test_unusable_setting_names_its_key(settings: Config, key: str, says: str) -> None:
    with pytest.raises(SettingFault) as fault:
        TokenProvider(settings, lambda: NOW)
    assert fault.value.key == key
    assert says in fault.value.problem
