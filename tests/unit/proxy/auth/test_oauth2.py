import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from aiohttp import web

from proxy.auth.identity import AuthData
from proxy.auth.own.oauth2 import (
    FETCH_SECONDS,
    MAX_ANSWER_BYTES,
    HttpIssuer,
    OAuth2Credentials,
    Token,
)
from proxy.config.credential_parameters import OAuth2Parameters
from proxy.core.errors import CredentialsUnavailable
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import TASKS_PER_TURN
from tests.support.auth.tls import PemFiles, server_context
from tests.support.loops.loops import most_in_an_iteration, virtually
from tests.support.sockets.ports import free_port
from tests.support.web.fake_web_broker import fake_web_broker


class FakeIssuer:
    """Gives tokens that are numbered, or says why not."""

    def __init__(self) -> None:
        self.life_seconds = 100.0
        self.asked = 0
        self.crashes: list[BaseException] = []
        loop = asyncio.get_running_loop()
        budget = LoopBudget(loop, loop.time)
        self.credentials = OAuth2Credentials(self.fetch, self.crashes.append, budget, lambda: 0.0)
        self.problem: Exception | None = None
        self.delay_seconds = 0.0

    async def fetch(self) -> Token:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(self.delay_seconds)
        if self.problem is not None:
            raise self.problem
        return Token(f"token-{number}", self.life_seconds)


@asynccontextmanager
async def issuer_of() -> AsyncIterator[FakeIssuer]:
    issuer = FakeIssuer()
    yield issuer
    await issuer.credentials.close()


@virtually(issuer_of)
async def test_a_token_is_fetched_once_and_kept_until_little_of_its_life_is_left(issuer: FakeIssuer) -> None:
    for _ in range(3):
        assert await issuer.credentials.current() == AuthData("token", b"token-1")
    await asyncio.sleep(89)
    assert await issuer.credentials.current() == AuthData("token", b"token-1")
    assert issuer.asked == 1
    await asyncio.sleep(2)
    # The old one serves while the new one is fetched.
    assert await issuer.credentials.current() == AuthData("token", b"token-1")
    await asyncio.sleep(0.1)
    assert await issuer.credentials.current() == AuthData("token", b"token-2")


@pytest.mark.threat("waiters-in-one-step")
@virtually(issuer_of)
async def test_those_who_wait_for_a_token_go_on_a_few_in_an_iteration(issuer: FakeIssuer) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(issuer.credentials.current()) for _ in range(200)]
        most = await most_in_an_iteration(lambda: sum(each.done() for each in asked), len(asked))
    assert most <= TASKS_PER_TURN
    assert issuer.asked == 1


@virtually(issuer_of)
async def test_an_issuer_that_fails_is_asked_again_after_pauses_that_grow(issuer: FakeIssuer) -> None:
    issuer.problem = CredentialsUnavailable("it is ill")
    asked = []
    for _ in range(400):
        with pytest.raises(CredentialsUnavailable, match="it is ill"):
            await issuer.credentials.current()
        asked.append(issuer.asked)
        await asyncio.sleep(0.5)
    # 200 s: after 1, 3, 7, 15, 31, 63, then every 60 s.
    assert issuer.asked <= 10
    issuer.problem = None
    await asyncio.sleep(60)
    assert (await issuer.credentials.current()) is not None


@virtually(issuer_of)
async def test_a_token_outlives_an_issuer_that_fails_until_it_expires(issuer: FakeIssuer) -> None:
    await issuer.credentials.current()
    issuer.problem = CredentialsUnavailable("it is ill")
    await asyncio.sleep(99)
    assert await issuer.credentials.current() == AuthData("token", b"token-1")
    await asyncio.sleep(2)
    with pytest.raises(CredentialsUnavailable, match="it is ill"):
        await issuer.credentials.current()


@virtually(issuer_of)
async def test_an_issuer_that_says_nothing_is_given_up(issuer: FakeIssuer) -> None:
    issuer.delay_seconds = 1e6
    began = asyncio.get_running_loop().time()
    with pytest.raises(CredentialsUnavailable, match="did not answer"):
        await issuer.credentials.current()
    assert asyncio.get_running_loop().time() - began == FETCH_SECONDS


@pytest.mark.threat("rude-oauth2-issuer")
@virtually(issuer_of)
async def test_an_issuer_of_tokens_that_expire_at_once_is_not_asked_all_the_time(issuer: FakeIssuer) -> None:
    issuer.life_seconds = 0.001
    for _ in range(100):
        with suppress(CredentialsUnavailable):
            await issuer.credentials.current()
        await asyncio.sleep(0.01)
    assert issuer.asked <= 2


@virtually(issuer_of)
async def test_a_crash_of_a_fetch_is_reported_and_does_not_repeat_at_once(issuer: FakeIssuer) -> None:
    issuer.problem = RuntimeError("unexpected")
    for _ in range(5):
        with pytest.raises(CredentialsUnavailable):
            await issuer.credentials.current()
    assert issuer.asked == len(issuer.crashes) == 1


# --- by HTTP ------------------------------------------------------------------------------------------

KEY = "data:application/json," + json.dumps({"client_id": "me", "client_secret": "s3cret"})


@dataclass
class Local:
    """An issuer on a local port: what it answers, and what it was asked."""

    token: web.Response = field(default_factory=lambda: web.json_response({"access_token": "a.b.c", "expires_in": 300}))
    discovery: object = None
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    async def fetch(self, tls: ssl.SSLContext | None = None, **settings: str) -> Token:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            self.asked.append((request.path, dict(parse_qsl(await request.text()))))
            if request.method == "POST":
                return self.token
            return web.json_response(
                {"token_endpoint": f"{server.url}/token"} if not self.discovery else self.discovery
            )

        async with fake_web_broker(answer, tls=tls) as server:
            return await HttpIssuer(OAuth2Parameters(server.url, KEY, **settings)).fetch()


async def test_a_token_is_asked_for_where_the_discovery_document_says() -> None:
    issuer = Local()
    assert await issuer.fetch(audience="urn:pulsar", scope="a b") == Token("a.b.c", 300.0)
    credentials = {"grant_type": "client_credentials", "client_id": "me", "client_secret": "s3cret"}
    assert issuer.asked[1:] == [("/token", {**credentials, "audience": "urn:pulsar", "scope": "a b"})]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (web.json_response({"error": "invalid_client", "error_description": "s3cret"}, status=401), "invalid_client"),
        (web.Response(status=500, text="s3cret"), "status 500"),
        (web.Response(status=400, text="[" * 60_000), "status 400"),
        (web.Response(text="s3cret"), "ValueError|JSONDecodeError"),
        (web.Response(text="[" * 60_000), "RecursionError|JSONDecodeError"),
        (web.json_response([]), "no JSON object"),
        (web.json_response({}), "no access_token"),
        (web.json_response({"access_token": "s3cret", "expires_in": "soon"}), "expires_in"),
        (web.json_response({"access_token": "s3cret", "expires_in": -1}), "expires_in"),
        (web.json_response({"access_token": "s3cret" * MAX_ANSWER_BYTES}), "more than"),
    ],
)
async def test_what_is_no_token_is_refused_without_a_word_of_it(token: web.Response, reason: str) -> None:
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        await Local(token).fetch()
    assert "s3cret" not in str(refused.value)


@pytest.mark.threat("rude-oauth2-issuer")
@pytest.mark.parametrize("text", ["a.b\r\nX-Forwarded-For: me", "a b", "a\0b", "\ud800", "\u202eabc", "é", "\x7f"])
async def test_a_token_that_would_not_be_one_word_of_a_header_is_refused(text: str) -> None:
    token = web.Response(text=json.dumps({"access_token": text, "expires_in": 300}))
    with pytest.raises(CredentialsUnavailable, match="one printable word"):
        await Local(token).fetch()


@pytest.mark.threat("rude-oauth2-issuer")
async def test_an_answer_that_would_grow_when_it_is_decompressed_stays_as_it_is() -> None:
    # It would be a token if it were decompressed: its size is not what is refused.
    packed = gzip.compress(json.dumps({"access_token": "a.b.c", "expires_in": 300}).encode())
    with pytest.raises(CredentialsUnavailable, match="cannot be asked: UnicodeDecodeError"):
        await Local(web.Response(body=packed, headers={"Content-Encoding": "gzip"})).fetch()


@pytest.mark.threat("rude-oauth2-issuer")
async def test_an_issuer_with_https_cannot_lead_to_an_address_without(tmp_path: Path) -> None:
    trust = str(PemFiles.write(tmp_path).trust)
    assert (await Local().fetch(server_context(), trust_certs_file_path=trust)).text == "a.b.c"
    for url in ("http://127.0.0.1:1/token", "HTTP://127.0.0.1:1/token", "ftp://x"):
        with pytest.raises(CredentialsUnavailable, match="without https"):
            await Local(discovery={"token_endpoint": url}).fetch(server_context(), trust_certs_file_path=trust)


async def test_a_secret_is_not_sent_where_an_answer_points() -> None:
    issuer = Local(web.Response(status=307, headers={"Location": "/elsewhere"}))
    with pytest.raises(CredentialsUnavailable, match="status 307"):
        await issuer.fetch()
    assert [path for path, form in issuer.asked if form] == ["/token"]


async def test_an_issuer_without_an_endpoint_is_refused() -> None:
    with pytest.raises(CredentialsUnavailable, match="no token_endpoint"):
        await Local(discovery={"issuer": "x"}).fetch()


async def test_an_issuer_that_is_not_there_is_told_without_its_address() -> None:
    with pytest.raises(CredentialsUnavailable, match="cannot be asked"):
        await HttpIssuer(OAuth2Parameters(f"http://127.0.0.1:{free_port()}", KEY)).fetch()
