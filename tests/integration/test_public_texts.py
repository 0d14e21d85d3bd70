"""A client that has not authenticated is told a fixed cause and nothing of the inside; the log has the rest."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from proxy.app.web_side import guard_of
from proxy.auth.identity import Authenticated
from proxy.core.errors import DisconnectCause
from proxy.core.public_causes import TARGET_TEXT, PublicCause, authentication_text, target_text
from proxy.web.http.clients import WebClient
from tests.support.auth.credentials import presenting
from tests.support.auth.issuer import AUDIENCE, Issuer, running_issuer
from tests.support.auth.tokens import SECRET, data_url, signed
from tests.support.clients.async_client import connect_frame
from tests.support.proxies.proxy_under_test import kept_log, staged
from tests.support.web.web_stage import ADMIN, WebStage, web_staged

PASSWORDS = b"alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="


@asynccontextmanager
async def guarded(issuer: Issuer, **more: Any) -> AsyncIterator[WebStage]:
    keys = {
        "authenticationEnabled": "true", "authenticationProviders": "token,openid,basic,tls",
        "tokenSecretKey": data_url(SECRET), "basicAuthConf": data_url(PASSWORDS),
        "openIDAllowedTokenIssuers": issuer.url, "openIDAllowedAudiences": AUDIENCE,
        "openIDRequireIssuersUseHttps": "false", "tokenAudienceClaim": "aud", "tokenAudience": AUDIENCE,
    }  # fmt: skip
    async with web_staged(**{**keys, **more}) as at:
        yield at


async def told(at: WebStage, method: str, data: bytes) -> str:
    """Present credentials at the binary port, and give the text of the refusal."""
    client = await at.stage.client()
    await client.send(presenting("", auth_method_name=method, auth_data=data))
    return (await client.last_command()).error.message


async def told_over_http(at: WebStage, header: str | None) -> tuple[int, str]:
    headers = {} if header is None else {"Authorization": header}
    async with at.client.get(at.url + ADMIN, headers=headers) as answer:
        return answer.status, str(json.loads(await answer.text())["reason"])


def now_and(**claims: Any) -> dict[str, Any]:
    now = time.time()
    return {"sub": "alice", "aud": AUDIENCE, "iat": now - 60, "nbf": now - 60, "exp": now + 600, **claims}


CASES: dict[str, tuple[str, Callable[[Issuer], bytes], PublicCause]] = {
    "no method": ("", lambda _: b"", PublicCause.REQUIRED),
    "another method": ("athenz", lambda _: b"x", PublicCause.NOT_ACCEPTED),
    "large credentials": ("token", lambda _: b"x" * (64 * 1024 + 1), PublicCause.TOO_LARGE),
    "no password": ("basic", lambda _: b"", PublicCause.REQUIRED),
    "wrong password": ("basic", lambda _: b"alice:wrong", PublicCause.REFUSED),
    "an unsigned token": ("token", lambda _: b"eyJhbGciOiJub25lIn0.e30.e30", PublicCause.REFUSED),
    "another audience": ("token", lambda _: signed(now_and(aud="other")), PublicCause.REFUSED),
    "an expired token": ("token", lambda _: signed(now_and(exp=1.0)), PublicCause.EXPIRED),
    "another issuer": ("token", lambda _: signed(now_and(iss="https://x"), "RS256", kid="rsa"), PublicCause.REFUSED),
    "an unknown key": ("token", lambda issuer: issuer.token("other", **now_and()), PublicCause.REFUSED),
}


@pytest.mark.threat("curious-stranger")
@pytest.mark.parametrize("case", CASES)
async def test_each_refusal_of_credentials_is_one_of_few_fixed_texts(case: str) -> None:
    method, data, cause = CASES[case]
    # What is forwarded has a bound below that of a frame.
    forwarding = {"forwardAuthorizationCredentials": "true"} if cause is PublicCause.TOO_LARGE else {}
    async with running_issuer() as issuer, guarded(issuer, **forwarding) as at:
        text = await told(at, method, data(issuer))
        assert text == authentication_text(cause)
        assert at.stage.caused("authentication_failed") == 1


ANSWERS: dict[str, Callable[[web.Request], web.StreamResponse]] = {
    "a redirect": lambda _: web.Response(status=307, headers={"Location": "http://10.1.2.3/inner"}),
    "an error": lambda _: web.Response(status=500, text="inner"),
    "another issuer's document": lambda _: web.json_response({"issuer": "https://inner"}),
}


async def test_a_certificate_over_http_is_no_claim_where_certificates_are_no_credentials() -> None:
    keys = {"authenticationProviders": "token", "anonymousUserRole": "guest"}
    async with running_issuer() as issuer, guarded(issuer, **keys) as at:
        guard = guard_of(at.stage.proxy.identities)
        assert guard is not None
        client = await guard.identified(WebClient("127.0.0.1:1", "127.0.0.1"), None, b"a certificate")
        assert client.role == "guest"


@pytest.mark.threat("curious-stranger")
@pytest.mark.parametrize("answer", ANSWERS)
async def test_strangers_learn_nothing_of_an_issuer_and_its_state(answer: str) -> None:
    async with running_issuer() as issuer, guarded(issuer) as at:
        issuer.answer = ANSWERS[answer]
        token = issuer.token(**now_and())
        assert await told(at, "token", token) == authentication_text(PublicCause.REFUSED)
        status, text = await told_over_http(at, f"Bearer {token.decode()}")
        assert (status, text) == (401, authentication_text(PublicCause.REFUSED))


@pytest.mark.threat("curious-stranger")
@pytest.mark.parametrize(
    ("header", "cause"),
    [
        (None, PublicCause.REQUIRED),
        ("Negotiate x", PublicCause.NOT_ACCEPTED),
        ("Bearer x", PublicCause.REFUSED),
        ("Basic YWxpY2U=", PublicCause.MALFORMED),
    ],
)
async def test_each_refusal_over_http_is_one_of_the_same_texts(header: str | None, cause: PublicCause) -> None:
    async with running_issuer() as issuer, guarded(issuer) as at:
        assert await told_over_http(at, header) == (401, authentication_text(cause))


async def test_a_client_that_says_it_is_a_proxy_is_told_no_more() -> None:
    async with running_issuer() as issuer, guarded(issuer) as at:
        client = await at.stage.client()
        await client.send(connect_frame(proxy_version="1", auth_method_name="token", auth_data=b"x"))
        assert (await client.last_command()).error.message == "must not provide proxy_version"


@pytest.mark.threat("port-scan")
def test_the_text_about_a_target_is_the_same_whatever_the_cause_but_for_a_brokers_own_words() -> None:
    for cause in DisconnectCause:
        text = target_text(cause, "10.1.2.3:6650: connection refused")
        if cause is DisconnectCause.BROKER_REFUSED:
            assert text == "10.1.2.3:6650: connection refused"
        elif cause is DisconnectCause.NO_BROKER_CREDENTIALS:
            assert "10.1.2.3" not in text
        else:
            assert text == TARGET_TEXT


async def test_the_log_has_what_the_client_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    log = kept_log(monkeypatch)
    async with running_issuer() as issuer, guarded(issuer) as at:
        issuer.answer = ANSWERS["a redirect"]
        await told(at, "token", issuer.token(**now_and()))
    assert "got status 307" in str(log.said)
    assert issuer.url in str(log.said)


class Confused:
    """Fails in the checks themselves, with an exception whose repr holds all that was presented."""

    def user_to_check(self, method: str, data: bytes) -> str | None:
        return None

    async def authenticate(self, method: str, data: bytes, certificate: bytes | None, network: str) -> Authenticated:
        return Authenticated(data.decode("ascii"))


@pytest.mark.threat("exception-quotes-secret")
async def test_a_failure_of_the_proxy_itself_tells_no_password_to_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with staged(role_finder=Confused(), authenticationEnabled="true") as stage:
        stage.expected_internal_errors = {"client_connection": 1}
        client = await stage.client()
        await client.send(presenting("", auth_method_name="basic", auth_data=b"alice:hush\xff"))
        assert await client.rest() == b""
        await stage.until(lambda: stage.caused("internal_error") == 1, "the end of the client")
    log = capfd.readouterr().err
    assert "UnicodeDecodeError" in log
    assert "hush" not in log
