"""Strangers in crowds, with tokens of an issuer that hangs, or guessed passwords: nobody else waits.

Checks of passwords are fake and end when the test says so: what counts is how many checks of others come before.
"""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import passlib.hash
import pytest

from protocol.errors import ServerError
from protocol.pb import PulsarApi_pb2 as pb
from proxy.auth.providers import issuer_keys
from proxy.core.public_causes import PublicCause, authentication_text
from tests.integration.test_memory_budgets import many_files
from tests.support.auth.credentials import presenting, refused
from tests.support.auth.issuer import AUDIENCE, Issuer, published, running_issuer
from tests.support.auth.slow_checks import HeldChecks
from tests.support.auth.tokens import SECRET, data_url, der, key_for, rsa_key, signed
from tests.support.clients.async_client import LOOPBACK, AsyncClient, connect_frame
from tests.support.patience import in_time
from tests.support.proxies.proxy_under_test import Stage, staged
from tests.support.web.web_stage import ADMIN, web_staged

__all__ = ["many_files"]

PLACES = 2
MOST_WAITING = 60
GUESSERS = 40
FORGERS = 60
HOME = "127.0.0.2"
# The guess that is being checked when the client comes, and one more.
MOST_BEFORE = 2
HASH = b"{SHA}" + base64.b64encode(hashlib.sha1(b"sesame", usedforsecurity=False).digest())
KNOWN_TOKEN = signed({"sub": "alice"}).decode()


# Nobody who waits gives up before the test is over.
PATIENT: dict[str, Any] = {"authenticationEnabled": "true", "handshakeTimeoutMillis": 120_000}
PASSWORDS: dict[str, Any] = {
    **PATIENT,
    "authenticationProviders": "basic",
    "basicAuthConf": data_url(b"alice:%b\nbob:%b\n" % (HASH, HASH)),
    "maxConcurrentAuthentications": 1,
}


def keys(issuer: Issuer) -> dict[str, Any]:
    """Let in by token, issuer or password; two places for those who need one."""
    return {
        **PASSWORDS,
        "authenticationProviders": "token,openid,basic",
        "tokenSecretKey": data_url(SECRET),
        "openIDAllowedTokenIssuers": issuer.url,
        "openIDAllowedAudiences": AUDIENCE,
        "openIDRequireIssuersUseHttps": "false",
        "openIDHttpReadTimeoutMillis": 120_000,
        "maxConcurrentAuthentications": PLACES,
    }


@asynccontextmanager
async def hung(monkeypatch: pytest.MonkeyPatch, most_waiting: int = MOST_WAITING) -> AsyncIterator[Issuer]:
    monkeypatch.setattr(issuer_keys, "MOST_WAITING", most_waiting)
    async with running_issuer() as issuer:
        issuer.may_answer.clear()
        yield issuer


async def presents(stage: Stage, connect: bytes, address: str = LOOPBACK) -> AsyncClient:
    client = await stage.client(source=address)
    await client.send(connect)
    return client


def password(user: str, text: str = "sesame") -> bytes:
    return connect_frame(auth_method_name="basic", auth_data=f"{user}:{text}".encode())


async def admitted(stage: Stage, connect: bytes) -> None:
    assert (await (await presents(stage, connect)).command()).type == pb.BaseCommand.CONNECTED


async def in_line(stage: Stage, number: int) -> None:
    authentication = stage.proxy.services.authentication
    assert authentication is not None
    await stage.until(lambda: authentication.under_way == number, f"{number} checks waiting or under way")


# --- an issuer that hangs -------------------------------------------------------------------------


@pytest.mark.threat("tokens-of-hung-issuer")
async def test_strangers_at_a_hung_issuer_keep_no_known_client_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hung(monkeypatch) as issuer, staged(**keys(issuer)) as stage:
        await admitted(stage, password("alice"))
        forged = presenting(issuer.token("made-up").decode())
        strangers = [await presents(stage, forged) for _ in range(MOST_WAITING + 20)]
        await stage.until(lambda: stage.caused("authentication_failed") == 20, "twenty who are told to come again")
        error = await refused(await presents(stage, forged))
        assert (error.error, error.message) == (ServerError.ServiceNotReady, authentication_text(PublicCause.BUSY))
        await admitted(stage, presenting(KNOWN_TOKEN))
        await admitted(stage, password("alice"))
        # All of them come at one question, and the others were told at once.
        assert len(issuer.asked) <= 1
        for stranger in strangers:
            stranger.close()
        await stage.until(lambda: len(stage.proxy.sessions) == 3, "the end of the strangers")


@pytest.mark.threat("made-up-key-ids")
async def test_made_up_key_ids_cost_the_issuer_a_question_a_second_and_keep_no_new_key_out() -> None:
    now = time.time()
    times: dict[str, Any] = {"iat": now - 60, "nbf": now - 60, "exp": now + 3600}
    async with running_issuer() as issuer, staged(**keys(issuer)) as stage:
        await admitted(stage, presenting(issuer.token(**times).decode()))
        began = stage.proxy.loop.time()
        for number in range(GUESSERS):
            await refused(await presents(stage, presenting(issuer.token(f"made-up-{number}", **times).decode())))
        issuer.keys.append(published("new", rsa_key(1)))
        token = presenting(issuer.token("new", "RS256", rsa_key(1), **times).decode())
        async with in_time():
            while (await (await presents(stage, token)).command()).type != pb.BaseCommand.CONNECTED:
                await refused(await presents(stage, presenting(issuer.token("made-up", **times).decode())))
        assert issuer.asked["/keys"] <= stage.proxy.loop.time() - began + 2


async def test_large_credentials_that_wait_take_no_more_memory_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {"forwardAuthorizationCredentials": "false"}
    async with hung(monkeypatch, 1000) as issuer, staged(**keys(issuer), **kept) as stage:
        large = issuer.token(padding="." * 20_000)
        fit = issuer_keys.MOST_WAITING_BYTES // len(large)
        strangers = [await presents(stage, presenting(large.decode())) for _ in range(fit + 5)]
        await stage.until(lambda: stage.caused("authentication_failed") == 5, "five who are told to come again")
        # A client is told before the permit of its frame comes back.
        most = 3 * issuer_keys.MOST_WAITING_BYTES + fit * 1024
        await stage.until(lambda: 0 < stage.handshakes.held < most, "the memory of the five given back")
        for stranger in strangers:
            stranger.close()
        await stage.until(lambda: stage.handshakes.held == 0, "the memory given back")


async def test_strangers_keep_no_known_client_out_of_the_web_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hung(monkeypatch) as issuer, web_staged(**keys(issuer), maxConcurrentHttpRequests=1) as at:
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


# --- wrong signatures -----------------------------------------------------------------------------


@pytest.mark.threat("wrong-signature-crowd")
async def test_a_crowd_of_wrong_signatures_holds_up_no_client_of_another_address_and_no_ping() -> None:
    slow: dict[str, Any] = {"tokenPublicKey": data_url(der(key_for("ES512"))), "tokenPublicAlg": "ES512"}
    async with staged(**PATIENT, authenticationProviders="token", **slow) as stage:
        good = signed({"sub": "alice"}, "ES512").decode()
        known = await presents(stage, presenting(good))
        assert (await known.command()).type == pb.BaseCommand.CONNECTED
        crowd = [await stage.client() for _ in range(FORGERS)]
        alice = await stage.client(source=HOME)
        await stage.until(lambda: len(stage.proxy.sessions) == FORGERS + 2, "all accepted")
        # Without a turn of the loop: it hears them all at once.
        for client in crowd:
            client.send_now(presenting(good[:-8] + "AAAAAAAA"))
        alice.send_now(presenting(good))
        for client in (*crowd, alice):
            client.deliver()
        assert (await alice.command()).type == pb.BaseCommand.CONNECTED
        assert stage.caused("authentication_failed") < FORGERS // 4
        pongs = 0
        while stage.caused("authentication_failed") < FORGERS:
            await known.ping()
            pongs += 1
        assert pongs > FORGERS // 15


# --- guessed passwords ----------------------------------------------------------------------------


async def before_right(stage: Stage, checks: HeldChecks) -> int:
    """End one check after the other until the right password is being checked; return how many came before."""
    while b"sesame" not in checks.asked:
        more = len(checks.asked) + 1
        checks.end(1)
        await stage.until(lambda least=more: len(checks.asked) >= least, "the next check")  # type: ignore[misc]
    return checks.asked.index(b"sesame")


@asynccontextmanager
async def guessed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Stage, HeldChecks]]:
    checks = HeldChecks(monkeypatch)
    async with staged(**PASSWORDS) as stage:
        try:
            yield stage, checks
        finally:
            checks.end()


@pytest.mark.threat("password-guesses-crowd-out")
@pytest.mark.parametrize("known", [False, True])
async def test_guessers_hold_up_no_client_of_another_address(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Of one address, or if `known` of many addresses that have guessed before, for the very user."""
    async with guessed(monkeypatch) as (stage, checks):
        guessers = [(f"127.0.1.{number + 1}" if known else LOOPBACK, number) for number in range(GUESSERS)]
        if known:
            checks.end(GUESSERS)
            for address, number in guessers:
                await presents(stage, password("alice", f"first {number}"), address)
            await in_line(stage, 0)
            checks.asked.clear()
        for address, number in guessers:
            await presents(stage, password("alice" if known else f"user{number}", f"guess {number}"), address)
        await in_line(stage, GUESSERS)
        alice = await presents(stage, password("alice"), HOME)
        await in_line(stage, GUESSERS + 1)
        assert await before_right(stage, checks) <= MOST_BEFORE
        checks.end(GUESSERS)
        assert (await alice.command()).type == pb.BaseCommand.CONNECTED


@pytest.mark.threat("password-guesses-crowd-out")
async def test_addresses_that_a_web_client_makes_up_are_one_client_for_the_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = HeldChecks(monkeypatch)

    async def asks(said: str, user: str, password: str) -> int:
        """Ask as a balancer does that any client can reach: it adds the address that it has seen."""
        basic = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"Authorization": basic, "X-Forwarded-For": said}
        async with at.client.get(at.url + ADMIN, headers=headers) as answer:
            return answer.status

    async with web_staged(**PASSWORDS, webServiceTrustXForwardedFor="true") as at, asyncio.TaskGroup() as group:
        made_up = [f"198.51.100.{number}, 203.0.113.66" for number in range(GUESSERS)]
        guesses = [group.create_task(asks(said, f"user{n}", f"guess {n}")) for n, said in enumerate(made_up)]
        try:
            await in_line(at.stage, GUESSERS)
            alice = group.create_task(asks("203.0.113.1", "alice", "sesame"))
            await in_line(at.stage, GUESSERS + 1)
            assert await before_right(at.stage, checks) <= MOST_BEFORE
        finally:
            checks.end()
        assert {await guess for guess in guesses} == {401}
        assert await alice == 200


@pytest.mark.threat("password-storm")
@pytest.mark.usefixtures("many_files")
async def test_a_storm_of_passwords_has_few_checks_at_once_and_a_bounded_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guessed(monkeypatch) as (stage, checks):
        checks.end(1)
        alice = await presents(stage, password("alice"))
        assert (await alice.command()).type == pb.BaseCommand.CONNECTED
        # One is being checked, a thousand wait for it, and the rest is told to come again.
        guessers = [await presents(stage, password("bob", f"guess {number}")) for number in range(1_011)]
        await stage.until(lambda: stage.caused("authentication_failed") == 10, "ten who are told to come again")
        assert (await refused(guessers[-1])).message == authentication_text(PublicCause.BUSY)
        assert checks.running == 1
        await alice.ping()


@pytest.mark.threat("user-name-timing")
async def test_a_wrong_password_costs_the_same_work_for_every_user_and_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = ("apr_md5_crypt", "des_crypt", "ldap_sha1", "bcrypt")
    hashes = {kind: getattr(passlib.hash, kind) for kind in kinds}
    users = {
        **{kind: hashes[kind].hash("sesame") for kind in kinds if kind != "bcrypt"},
        "dear": hashes["bcrypt"].using(rounds=5).hash("sesame"),
        "cheaper": hashes["bcrypt"].using(rounds=4).hash("sesame"),
    }
    checked: list[str] = []
    for kind, verify in [(kind, hashes[kind].verify) for kind in kinds]:

        def noted(password: bytes, text: str, kind: str = kind, verify: Any = verify) -> Any:
            checked.append(kind + text[4:6] * (kind == "bcrypt"))
            return verify(password, text)

        monkeypatch.setattr(hashes[kind], "verify", noted)
    lines = "".join(f"{user}:{text}\n" for user, text in users.items())
    async with staged(**PASSWORDS | {"basicAuthConf": data_url(lines.encode())}) as stage:
        work = {}
        for user in (*users, "nobody", "nobody else"):
            checked.clear()
            await refused(await presents(stage, password(user, "wrong")))
            work[user] = sorted(checked)
    expected = ["apr_md5_crypt", "bcrypt04", "bcrypt05", "des_crypt", "ldap_sha1"]
    assert work == dict.fromkeys(work, expected)
