import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

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
from tests.support.loops.loops import most_in_an_iteration, run_virtual


class FakeIssuer:
    """Gives tokens that are numbered, or says why not."""

    def __init__(self, life_seconds: float = 100.0) -> None:
        self.life_seconds = life_seconds
        self.asked = 0
        self.problem: Exception | None = None
        self.delay_seconds = 0.0

    async def fetch(self) -> Token:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(self.delay_seconds)
        if self.problem is not None:
            raise self.problem
        return Token(f"token-{number}", self.life_seconds)


def play(work: Callable[[FakeIssuer, OAuth2Credentials, list[BaseException]], Awaitable[None]]) -> None:
    async def main() -> None:
        issuer, crashes = FakeIssuer(), list[BaseException]()
        loop = asyncio.get_running_loop()
        credentials = OAuth2Credentials(issuer, crashes.append, LoopBudget(loop, loop.time), lambda: 0.0)
        await work(issuer, credentials, crashes)
        await credentials.close()

    run_virtual(main())


def test_a_token_is_fetched_once_and_kept_until_little_of_its_life_is_left() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        for _ in range(3):
            assert await credentials.current() == AuthData("token", b"token-1")
        await asyncio.sleep(89)
        assert await credentials.current() == AuthData("token", b"token-1")
        assert issuer.asked == 1
        await asyncio.sleep(2)
        # The old one serves while the new one is fetched.
        assert await credentials.current() == AuthData("token", b"token-1")
        await asyncio.sleep(0.1)
        assert await credentials.current() == AuthData("token", b"token-2")

    play(work)


def test_all_who_need_a_token_share_one_fetch_and_may_leave_it() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        issuer.delay_seconds = 5.0
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(credentials.current()) for _ in range(5)]
            await asyncio.sleep(1)
            tasks[0].cancel()
        assert {task.result() for task in tasks[1:]} == {AuthData("token", b"token-1")}
        assert issuer.asked == 1

    play(work)


@pytest.mark.threat("waiters-in-one-step")
def test_those_who_wait_for_a_token_go_on_a_few_in_an_iteration() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        tokens = list[AuthData | None]()

        async def need() -> None:
            tokens.append(await credentials.current())

        async with asyncio.TaskGroup() as group:
            for _ in range(200):
                group.create_task(need())
            assert await most_in_an_iteration(lambda: len(tokens), 200) <= TASKS_PER_TURN
        assert issuer.asked == 1

    play(work)


def test_an_issuer_that_fails_is_asked_again_after_pauses_that_grow() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        issuer.problem = CredentialsUnavailable("it is ill")
        asked = []
        for _ in range(400):
            with pytest.raises(CredentialsUnavailable, match="it is ill"):
                await credentials.current()
            asked.append(issuer.asked)
            await asyncio.sleep(0.5)
        # 200 s: after 1, 3, 7, 15, 31, 63, then every 60 s.
        assert issuer.asked <= 10
        issuer.problem = None
        await asyncio.sleep(60)
        assert (await credentials.current()) is not None

    play(work)


def test_a_token_outlives_an_issuer_that_fails_until_it_expires() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        await credentials.current()
        issuer.problem = CredentialsUnavailable("it is ill")
        await asyncio.sleep(99)
        assert await credentials.current() == AuthData("token", b"token-1")
        await asyncio.sleep(2)
        with pytest.raises(CredentialsUnavailable, match="it is ill"):
            await credentials.current()

    play(work)


def test_an_issuer_that_says_nothing_is_given_up() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        issuer.delay_seconds = 1e6
        began = asyncio.get_running_loop().time()
        with pytest.raises(CredentialsUnavailable, match="did not answer"):
            await credentials.current()
        assert asyncio.get_running_loop().time() - began == FETCH_SECONDS

    play(work)


@pytest.mark.threat("rude-oauth2-issuer")
def test_an_issuer_of_tokens_that_expire_at_once_is_not_asked_all_the_time() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, _: object) -> None:
        issuer.life_seconds = 0.001
        for _ in range(100):
            with suppress(CredentialsUnavailable):
                await credentials.current()
            await asyncio.sleep(0.01)
        assert issuer.asked <= 2

    play(work)


def test_a_crash_of_a_fetch_is_reported_and_does_not_repeat_at_once() -> None:
    async def work(issuer: FakeIssuer, credentials: OAuth2Credentials, crashes: list[BaseException]) -> None:
        issuer.problem = RuntimeError("unexpected")
        for _ in range(5):
            with pytest.raises(CredentialsUnavailable):
                await credentials.current()
        assert issuer.asked == len(crashes) == 1

    play(work)


# --- by HTTP ------------------------------------------------------------------------------------------

KEY = "data:application/json," + json.dumps({"client_id": "me", "client_secret": "s3cret"})


class Answers:
    """What a local issuer answers, and what it was sent."""

    def __init__(self) -> None:
        self.discovery: object = None
        self.token: web.Response = web.json_response({"access_token": "a.b.c", "expires_in": 300})
        self.forms: list[dict[str, str]] = []
        self.redirected: list[str] = []


@asynccontextmanager
async def local_issuer(answers: Answers) -> AsyncIterator[str]:
    async def discover(request: web.Request) -> web.Response:
        found = {"token_endpoint": f"http://{request.host}/token"} if answers.discovery is None else answers.discovery
        return web.json_response(found)

    async def token(request: web.Request) -> web.Response:
        answers.forms.append({name: str(value) for name, value in (await request.post()).items()})
        return answers.token

    async def elsewhere(request: web.Request) -> web.Response:
        answers.redirected.append(await request.text())
        return web.json_response({"access_token": "stolen", "expires_in": 300})

    application = web.Application()
    application.router.add_get("/.well-known/openid-configuration", discover)
    application.router.add_post("/token", token)
    application.router.add_route("*", "/elsewhere", elsewhere)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def fetched(answers: Answers, **settings: str) -> Token:
    async with local_issuer(answers) as url:
        return await HttpIssuer(OAuth2Parameters(url, KEY, **settings)).fetch()


async def test_a_token_is_asked_for_where_the_discovery_document_says() -> None:
    answers = Answers()
    assert await fetched(answers, audience="urn:pulsar", scope="a b") == Token("a.b.c", 300.0)
    assert answers.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": "s3cret",
            "audience": "urn:pulsar",
            "scope": "a b",
        }
    ]


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (web.json_response({"error": "invalid_client", "error_description": "s3cret"}, status=401), "invalid_client"),
        (web.Response(status=500, text="s3cret"), "status 500"),
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
    answers = Answers()
    answers.token = token
    with pytest.raises(CredentialsUnavailable, match=reason) as refused:
        await fetched(answers)
    assert "s3cret" not in str(refused.value)


@pytest.mark.threat("rude-oauth2-issuer")
@pytest.mark.parametrize("text", ["a.b\r\nX-Forwarded-For: me", "a b", "a\0b", "\ud800", "\u202eabc", "é", "\x7f"])
async def test_a_token_that_would_not_be_one_word_of_a_header_is_refused(text: str) -> None:
    answers = Answers()
    answers.token = web.Response(text=json.dumps({"access_token": text, "expires_in": 300}))
    with pytest.raises(CredentialsUnavailable, match="one printable word"):
        await fetched(answers)


@pytest.mark.threat("rude-oauth2-issuer")
async def test_an_answer_that_would_grow_when_it_is_decompressed_stays_as_it_is() -> None:
    answers = Answers()
    grown = json.dumps({"access_token": "a.b.c", "expires_in": 300, "padding": " " * 16 * 1024 * 1024}).encode()
    answers.token = web.Response(body=gzip.compress(grown), headers={"Content-Encoding": "gzip"})
    with pytest.raises(CredentialsUnavailable, match="cannot be asked: UnicodeDecodeError"):
        await fetched(answers)
    # An answer of the same form that would pass if it were decompressed, so that its size is not what is refused.
    small = gzip.compress(json.dumps({"access_token": "a.b.c", "expires_in": 300}).encode())
    answers.token = web.Response(body=small, headers={"Content-Encoding": "gzip"})
    with pytest.raises(CredentialsUnavailable, match="cannot be asked: UnicodeDecodeError"):
        await fetched(answers)


@pytest.mark.threat("rude-oauth2-issuer")
async def test_an_issuer_with_https_cannot_lead_to_an_address_without() -> None:
    issuer = HttpIssuer(OAuth2Parameters("https://issuer.test", KEY))
    for url in ("http://issuer.test/token", "HTTP://issuer.test/token", "ftp://x"):
        with pytest.raises(CredentialsUnavailable, match="without https"):
            issuer._expect_as_safe(url)
    issuer._expect_as_safe("HTTPS://other.test/token")
    HttpIssuer(OAuth2Parameters("http://issuer.test", KEY))._expect_as_safe("http://issuer.test/token")


async def test_a_secret_is_not_sent_where_an_answer_points() -> None:
    answers = Answers()
    answers.token = web.Response(status=307, headers={"Location": "/elsewhere"})
    with pytest.raises(CredentialsUnavailable, match="status 307"):
        await fetched(answers)
    assert answers.redirected == []


async def test_an_issuer_without_an_endpoint_is_refused() -> None:
    answers = Answers()
    answers.discovery = {"issuer": "x"}
    with pytest.raises(CredentialsUnavailable, match="no token_endpoint"):
        await fetched(answers)


async def test_an_issuer_that_is_not_there_is_told_without_its_address() -> None:
    async with local_issuer(Answers()) as url:
        pass
    with pytest.raises(CredentialsUnavailable, match="cannot be asked"):
        await HttpIssuer(OAuth2Parameters(url, KEY)).fetch()
