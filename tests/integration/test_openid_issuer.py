import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proxy.auth.failures import Reason, SettingFault
from proxy.auth.providers.issuer_client import LARGEST_ANSWER_BYTES
from proxy.config.config import Config
from tests.support.auth.authentication import Doorman, at_once
from tests.support.auth.issuer import AUDIENCE, DISCOVERY, Issuer, published, running_issuer
from tests.support.auth.tls import PemFiles, server_context
from tests.support.auth.tokens import NOW, dear_rsa_key, ec_key, rsa_key, weak_rsa_key
from tests.support.configured import configured
from tests.support.loops.clock import ManualClock
from tests.support.loops.loops import eventually
from tests.support.patience import patient
from tests.support.proxies.counted import counted

LIMITS = ("openIDHttpConnectionTimeoutMillis", "openIDHttpReadTimeoutMillis")
OPEN = {"openIDRequireIssuersUseHttps": "false"} | dict.fromkeys(LIMITS, str(int(1000 * patient(5))))
IMPATIENT = OPEN | dict.fromkeys(LIMITS, "100")
FAILED = Reason.ERROR_RETRIEVING_PROVIDER_METADATA
NO_KEY = Reason.ERROR_RETRIEVING_PUBLIC_KEY


def openid(*issuers: str, access: dict[str, str] = OPEN, **more: object) -> Config:
    keys = {"openIDAllowedTokenIssuers": ",".join(issuers), "openIDAllowedAudiences": f"{AUDIENCE},other"}
    return configured(authenticationProviders="openid", **keys | access | more)


class Stage:
    """An issuer, a doorman who trusts it, and a clock that a test moves."""

    def __init__(self, issuer: Issuer, access: dict[str, str], **more: Any) -> None:
        self.issuer = issuer
        self.clock = ManualClock()
        self.doorman = Doorman(openid(issuer.url, access=access, **more), self.clock)

    async def role_of(self, token: bytes) -> str:
        return (await self.doorman.admits("token", token)).role

    async def refuses(self, token: bytes) -> Reason:
        return (await self.doorman.refuses("token", token)).reason


@asynccontextmanager
async def stage(access: dict[str, str] = OPEN, **more: Any) -> AsyncIterator[Stage]:
    async with running_issuer() as issuer:
        set_up = Stage(issuer, access, **more)
        yield set_up
        issuer.may_answer.set()
        await set_up.doorman.authenticator.close()
        assert set_up.doorman.crashes == []


async def test_token_of_an_issuer_is_believed_and_its_keys_are_kept() -> None:
    async with stage() as s:
        found = await s.doorman.admits("token", s.issuer.token())
        assert (found.role, found.expires_at) == ("alice", NOW + 600)
        assert at_once(s.doorman.admits("token", s.issuer.token("ec", "ES256", sub="bob"))).role == "bob"
        assert s.issuer.asked == {DISCOVERY: 1, "/keys": 1}


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW - 1}, Reason.EXPIRED_JWT),
        ({"exp": None}, Reason.INVALID_JWT_CLAIM),
        ({"iat": None}, Reason.INVALID_JWT_CLAIM),
        ({"nbf": None}, Reason.INVALID_JWT_CLAIM),
        ({"sub": None}, Reason.INVALID_JWT_CLAIM),
        ({"nbf": NOW + 5}, Reason.INVALID_JWT_CLAIM),
        ({"iat": NOW + 5}, Reason.INVALID_JWT_CLAIM),
        ({"aud": "elsewhere"}, Reason.INVALID_JWT_CLAIM),
        ({"aud": None}, Reason.INVALID_JWT_CLAIM),
        ({"iss": None}, Reason.UNSUPPORTED_ISSUER),
        ({"iss": "http://127.0.0.1:9/"}, Reason.UNSUPPORTED_ISSUER),
        ({"iss": ["x"]}, Reason.UNSUPPORTED_ISSUER),
    ],
)
async def test_claims_that_are_not_in_order_are_refused(claims: dict[str, Any], reason: Reason) -> None:
    async with stage() as s:
        assert await s.refuses(s.issuer.token(**claims)) is reason
        assert counted(s.doorman.counters, "pulsar_expired_token") == (reason is Reason.EXPIRED_JWT)


async def test_any_of_several_audiences_will_do_and_leeway_and_role_claim_are_obeyed() -> None:
    async with stage(openIDAcceptedTimeLeewaySeconds=10, openIDRoleClaim="groups") as s:
        token = s.issuer.token(aud=["x", "other"], exp=NOW - 5, nbf=NOW + 5, groups=["ops", "dev"])
        assert await s.role_of(token) == "ops"
        assert await s.refuses(s.issuer.token()) is Reason.INVALID_JWT_CLAIM


async def test_issuer_that_is_not_allowed_is_never_asked() -> None:
    async with stage() as s, running_issuer() as stranger:
        assert await s.refuses(stranger.token()) is Reason.UNSUPPORTED_ISSUER
        assert stranger.asked == {}


async def test_key_of_the_issuer_decides_the_algorithm() -> None:
    async with stage() as s:
        s.issuer.keys.append(published("only-512", rsa_key(), alg="RS512"))
        s.issuer.keys.append({"kty": "oct", "kid": "secret", "k": "c2VjcmV0"})
        assert await s.refuses(s.issuer.token("rsa", "RS256", rsa_key(1))) is Reason.ERROR_VERIFYING_JWT_SIGNATURE
        assert await s.refuses(s.issuer.token("ec", "RS256")) is Reason.ALGORITHM_MISMATCH
        assert await s.refuses(s.issuer.token("only-512", "RS256")) is Reason.ALGORITHM_MISMATCH
        assert await s.role_of(s.issuer.token("only-512", "RS512")) == "alice"
        assert await s.refuses(s.issuer.token("rsa", "PS256")) is Reason.UNSUPPORTED_ALGORITHM
        assert await s.refuses(s.issuer.token("secret", "HS256")) is Reason.UNSUPPORTED_ALGORITHM
        assert await s.refuses(s.issuer.token(None)) is NO_KEY


async def test_keys_that_cannot_be_used_are_passed_over() -> None:
    async with stage() as s:
        weak = weak_rsa_key().public_numbers()
        s.issuer.keys[:0] = [
            published("enc", rsa_key(1), use="enc"),
            {"kty": "RSA", "kid": "half", "n": "AQAB"},
            {"kty": "RSA", "kid": "weak", "n": "AQAB" * 40, "e": "AQAB"},
            {"kty": "EC", "kid": "odd", "crv": "P-256", "x": 1, "y": []},
            {"kty": "OKP", "kid": "other", "crv": "Ed25519", "x": "AA"},
            published("odd-alg", ec_key(), alg={"a": 1}),
            {"kid": weak.e},
        ]
        s.issuer.keys.append("no key")  # type: ignore[arg-type]
        assert await s.role_of(s.issuer.token()) == "alice"
        assert await s.refuses(s.issuer.token("enc", "RS256", rsa_key(1))) is NO_KEY


@pytest.mark.threat("slow-issuer-keys")
async def test_a_token_of_a_key_whose_checks_take_long_is_not_checked() -> None:
    async with stage() as s:
        s.issuer.keys.append(published("dear", dear_rsa_key()))
        assert await s.refuses(s.issuer.token("dear", key=dear_rsa_key())) is NO_KEY
        assert await s.role_of(s.issuer.token()) == "alice"


async def test_keys_are_refreshed_in_the_background_and_outlive_their_issuer_until_they_expire() -> None:
    async with stage() as s:
        token = s.issuer.token()
        await s.role_of(token)
        s.issuer.keys.append(published("new", rsa_key(1)))
        s.clock.advance(18 * 3600)
        await s.role_of(token)
        await eventually(lambda: s.issuer.asked["/keys"] == 2, "a refresh")
        assert await s.role_of(s.issuer.token("new", "RS256", rsa_key(1))) == "alice"
        s.issuer.answer = lambda _: web.Response(status=503)
        s.clock.advance(18 * 3600)
        # The refresh goes on in the background; nobody waits for it.
        assert at_once(s.doorman.admits("token", token)).role == "alice"
        await eventually(lambda: s.issuer.asked[DISCOVERY] == 3, "a refresh that fails")
        assert at_once(s.doorman.admits("token", token)).role == "alice"
        s.clock.advance(6 * 3600)
        assert await s.refuses(token) is FAILED


async def test_issuer_that_goes_on_failing_is_asked_less_and_less() -> None:
    async with stage() as s:
        s.issuer.answer = lambda _: web.Response(status=500)
        for rest_seconds in (1, 2, 4, 8, 10, 10):
            asked = s.issuer.asked.get(DISCOVERY, 0)
            assert await s.refuses(s.issuer.token()) is FAILED
            # A rest is up to a quarter shorter at random.
            s.clock.advance(0.7 * rest_seconds)
            assert await s.refuses(s.issuer.token()) is FAILED
            assert s.issuer.asked[DISCOVERY] == asked + 1
            s.clock.advance(0.3 * rest_seconds)
        s.issuer.answer = None
        assert await s.role_of(s.issuer.token()) == "alice"


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: web.Response(body=b"[]"),
        lambda _: web.Response(body=b"[" * 100_000),
        lambda _: web.Response(body=b"\xff\xfe"),
        lambda _: web.json_response({}),
        lambda _: web.json_response({"keys": {}}),
        lambda _: web.Response(status=204),
    ],
)
@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
async def test_answer_that_is_no_answer_is_refused(path: str, answer: Callable[[web.Request], web.Response]) -> None:
    async with stage() as s:

        def respond(request: web.Request) -> web.Response:
            if request.path == path:
                return answer(request)
            return web.json_response({"issuer": s.issuer.url, "jwks_uri": f"{s.issuer.url}/keys"})

        s.issuer.answer = respond
        assert await s.refuses(s.issuer.token()) is (FAILED if path == DISCOVERY else NO_KEY)


async def test_answer_costs_no_more_memory_than_allowed() -> None:
    packed = gzip.compress(b" " * (64 * LARGEST_ANSWER_BYTES))
    async with stage() as s:
        s.issuer.answer = lambda _: web.Response(body=b" " * (LARGEST_ANSWER_BYTES + 1))
        assert "more than" in str(await s.doorman.refuses("token", s.issuer.token()))
        s.clock.advance(2)
        s.issuer.answer = lambda _: web.Response(body=packed, headers={"Content-Encoding": "gzip"})
        assert "expected a JSON object" in str(await s.doorman.refuses("token", s.issuer.token()))


async def test_issuer_cannot_send_the_proxy_elsewhere() -> None:
    async with stage() as s, running_issuer() as inside:
        s.issuer.answer = lambda request: web.Response(status=302, headers={"Location": inside.url + request.path})
        assert await s.refuses(s.issuer.token()) is FAILED
        assert inside.asked == {}


async def test_issuer_that_says_nothing_is_given_up() -> None:
    async with stage(IMPATIENT) as s:
        s.issuer.may_answer.clear()
        refusal = str(await s.doorman.refuses("token", s.issuer.token()))
        # On a busy machine the time for all of it may be over before the time for this answer.
        assert "no answer in time" in refusal or "no keys within" in refusal


async def test_document_of_another_issuer_is_refused() -> None:
    async with stage() as s:
        s.issuer.names_itself = "https://issuer.example"
        assert await s.refuses(s.issuer.token()) is FAILED
        assert s.issuer.asked == {DISCOVERY: 1}


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/keys", "//127.0.0.1/keys", "http://"])
async def test_key_set_elsewhere_than_on_the_web_is_refused(address: str) -> None:
    async with stage() as s:
        s.issuer.jwks_uri = address
        assert await s.refuses(s.issuer.token()) in (FAILED, NO_KEY)
        assert "/keys" not in s.issuer.asked


async def test_closing_ends_a_question_and_those_who_wait_for_it() -> None:
    async with stage() as s:
        s.issuer.may_answer.clear()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(s.refuses(s.issuer.token()))
            await eventually(lambda: s.issuer.asked, "the question")
            await s.doorman.authenticator.close()
            assert await waiting is FAILED


async def test_no_more_issuers_are_kept_than_asked_for() -> None:
    async with running_issuer() as one, running_issuer() as two:
        doorman = Doorman(openid(one.url, two.url, openIDCacheSize=1))
        for issuer in (one, two, one):
            await doorman.admits("token", issuer.token())
        assert (one.asked["/keys"], two.asked["/keys"]) == (2, 1)
        await doorman.authenticator.close()


async def test_issuer_over_tls_is_believed_by_the_trusted_authority_only(tmp_path: Path) -> None:
    trusted = str(PemFiles.write(tmp_path).trust)
    async with running_issuer(server_context()) as issuer:
        for trust_file in (trusted, ""):
            doorman = Doorman(openid(issuer.url, access={"openIDTokenIssuerTrustCertsFilePath": trust_file}))
            if trust_file:
                assert (await doorman.admits("token", issuer.token())).role == "alice"
            else:
                assert (await doorman.refuses("token", issuer.token())).reason is FAILED
            await doorman.authenticator.close()


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (openid(), "openIDAllowedTokenIssuers"),
        (openid("https://a", access={}, openIDAllowedAudiences=""), "openIDAllowedAudiences"),
        (openid("http://a", access={}), "openIDAllowedTokenIssuers"),
        (openid("ftp://a"), "openIDAllowedTokenIssuers"),
        (
            openid("https://a", access={"openIDTokenIssuerTrustCertsFilePath": "/no/file"}),
            "openIDTokenIssuerTrustCertsFilePath",
        ),
    ],
)
def test_unusable_setting_names_its_key(settings: Config, key: str) -> None:
    with pytest.raises(SettingFault) as fault:
        Doorman(settings)
    assert fault.value.key == key
