"""An issuer that hangs, guessers of passwords, and everybody else, who must not notice them."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.providers import issuer_keys
from proxy.core.public_causes import PublicCause, authentication_text
from tests.support.auth.credentials import presenting, refused
from tests.support.auth.issuer import AUDIENCE, Issuer, running_issuer
from tests.support.auth.slow_checks import SlowChecks
from tests.support.auth.tokens import SECRET, signed
from tests.support.clients.async_client import AsyncClient, connect_frame
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.web_stage import ADMIN, web_staged

PLACES = 2
MOST_WAITING = 60
PASSWORDS = b"alice:{SHA}" + base64.b64encode(hashlib.sha1(b"sesame", usedforsecurity=False).digest())
KNOWN_TOKEN = signed({"sub": "alice"}).decode()


def data_url(content: bytes) -> str:
    return f"data:;base64,{base64.b64encode(content).decode()}"


def keys(issuer: Issuer) -> dict[str, Any]:
    """Let in by token, issuer or password; two places for those who need one."""
    return {
        "authenticationEnabled": "true", "authenticationProviders": "token,openid,basic",
        "tokenSecretKey": data_url(SECRET), "basicAuthConf": data_url(PASSWORDS),
        "openIDAllowedTokenIssuers": issuer.url, "openIDAllowedAudiences": AUDIENCE,
        "openIDRequireIssuersUseHttps": "false", "maxConcurrentAuthentications": PLACES,
        # Nobody who waits gives up before the test is over.
        "handshakeTimeoutMillis": 120_000, "openIDHttpReadTimeoutMillis": 120_000,
    }  # fmt: skip


@pytest.fixture(autouse=True)
def short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "MOST_WAITING", MOST_WAITING)


@asynccontextmanager
async def hung() -> AsyncIterator[Issuer]:
    async with running_issuer() as issuer:
        issuer.may_answer.clear()
        yield issuer


def with_password(pair: bytes) -> bytes:
    return connect_frame(auth_method_name="basic", auth_data=pair)


async def crowd(stage: Stage, number: int, connect: bytes) -> list[AsyncClient]:
    clients = [await stage.client() for _ in range(number)]
    for client in clients:
        await client.send(connect)
    return clients


async def admitted(stage: Stage, connect: bytes) -> None:
    client = await stage.client()
    await client.send(connect)
    assert (await client.command()).type == pb.BaseCommand.CONNECTED


@pytest.mark.threat("tokens-of-hung-issuer")
async def test_strangers_at_a_hung_issuer_keep_no_known_client_out() -> None:
    async with hung() as issuer, staged(**keys(issuer)) as stage:
        await admitted(stage, with_password(b"alice:sesame"))
        forged = presenting(issuer.token("made-up").decode())
        strangers = await crowd(stage, MOST_WAITING + 20, forged)
        await stage.until(lambda: stage.caused("authentication_failed") == 20, "twenty who are told to come again")
        await admitted(stage, presenting(KNOWN_TOKEN))
        await admitted(stage, with_password(b"alice:sesame"))
        # All of them come at one question, and the others were told at once.
        assert len(issuer.asked) <= 1
        for stranger in strangers:
            stranger.close()
        await stage.until(lambda: len(stage.proxy.sessions) == 3, "the end of the strangers")


async def test_who_finds_too_many_waiting_is_told_to_come_again() -> None:
    async with hung() as issuer, staged(**keys(issuer)) as stage:
        forged = presenting(issuer.token().decode())
        await crowd(stage, MOST_WAITING, forged)
        await stage.until(lambda: issuer.asked, "a question")
        one_more = await stage.client()
        await one_more.send(forged)
        error = await refused(one_more)
        assert error.error == ServerError.ServiceNotReady
        assert error.message == authentication_text(PublicCause.BUSY)


async def test_large_credentials_that_wait_take_no_more_memory_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "MOST_WAITING", 1000)
    kept: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
    async with hung() as issuer, staged(**keys(issuer), **kept) as stage:
        large = issuer.token(padding="." * 20_000)
        fit = issuer_keys.MOST_WAITING_BYTES // len(large)
        strangers = await crowd(stage, fit + 5, presenting(large.decode()))
        await stage.until(lambda: stage.caused("authentication_failed") == 5, "five who are told to come again")
        # A client is told before the permit of its frame comes back.
        most = 3 * issuer_keys.MOST_WAITING_BYTES + fit * 1024
        await stage.until(lambda: 0 < stage.handshakes.held < most, "the memory of the five given back")
        for stranger in strangers:
            stranger.close()
        await stage.until(lambda: stage.handshakes.held == 0, "the memory given back")


@pytest.mark.threat("password-guesses-crowd-out")
async def test_guessers_of_passwords_keep_no_known_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hung() as issuer, staged(**keys(issuer)) as stage:
        await admitted(stage, with_password(b"alice:sesame"))
        checks = SlowChecks(monkeypatch)
        try:
            await crowd(stage, 10 * PLACES, with_password(b"alice:guess"))
            authentication = stage.proxy.services.authentication
            assert authentication is not None
            await stage.until(lambda: authentication.under_way == 10 * PLACES, "guesses in line")
            await admitted(stage, presenting(KNOWN_TOKEN))
            await admitted(stage, with_password(b"alice:sesame"))
            assert authentication.under_way == 10 * PLACES
        finally:
            checks.let_go.set()


async def test_strangers_keep_no_known_client_out_of_the_web_port() -> None:
    async with hung() as issuer, web_staged(**keys(issuer), maxConcurrentHttpRequests=1) as at:
        token = issuer.token().decode()
        request = f"GET {ADMIN} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        async with asyncio.TaskGroup() as group:
            strangers = [group.create_task(at.raw(request.encode())) for _ in range(MOST_WAITING + 20)]
            await at.stage.until(lambda: sum(s.done() for s in strangers) == 20, "twenty who are told to come again")
            told = {stranger.result() for stranger in strangers if stranger.done()}
            async with at.client.get(at.url + ADMIN, headers={"Authorization": f"Bearer {KNOWN_TOKEN}"}) as answer:
                assert answer.status == 200
            issuer.answer = None
            issuer.may_answer.set()
        assert all(answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1\r\n" in answer for answer in told)
