"""The proxy's own token from an OAuth 2.0 issuer: client credentials (RFC 6749, section 4.4).

A single fetch at a time serves all waiters, and continues if a waiter leaves. A token is kept until an eighth to a
tenth of its life is left. While the issuer fails, the old token is used until it expires, and the issuer is asked again
after a pause that doubles. Both are drawn at random, so that proxies that started together do not come together each
time. No error text holds any part of a secret or a token.

Rule: the issuer is trusted with its secret and with nothing else. Answers are bounded in time and size and are never
decompressed, a token is one printable word, and the secret leaves the machine only over https if the issuer has https.
"""

import asyncio
import base64
import binascii
import json
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from proxy.auth.identity import AuthData
from proxy.auth.issuer_sockets import issuer_socket
from proxy.auth.own.broker_credentials import read_file
from proxy.config.credential_parameters import PARAMETERS, OAuth2Parameters, path_of
from proxy.core.errors import CredentialsUnavailable
from proxy.core.loop_budget import LoopBudget
from proxy.core.task_turns import PacedWaiters, TaskTurns
from proxy.core.tasks import Draw, TaskScope, spread

FETCH_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 64 * 1024
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# Between two tokens, whatever life the issuer gives them.
LEAST_PAUSE_SECONDS: Final = 1.0
# The part of a token's life that is left at least when the next token is fetched, and a random part more.
RENEWED_AT: Final = 0.1
RENEWED_EARLIER: Final = 0.025
# The life of a token whose issuer does not state it (RFC 6749, section 5.1).
DEFAULT_LIFE_SECONDS: Final = 60.0
# A token goes into a header (RFC 6750, section 2.1), where a line break would begin another one.
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Token:
    """An access token and its life in seconds."""

    text: str = field(repr=False)
    life_seconds: float


class OAuth2Credentials:
    """A token that is kept fresh (implements `proxy.auth.own.broker_credentials.BrokerCredentials`).

    `fetch` returns a new token, or raises CredentialsUnavailable.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        on_crash: Callable[[BaseException], None],
        loop_budget: LoopBudget,
        draw: Draw = random.random,
    ) -> None:
        self._fetch = fetch
        self._draw = draw
        self._renewed_at = RENEWED_AT
        self._scope = TaskScope(on_crash)
        self._token: Token | None = None
        self._fetched_at = 0.0
        self._fetching = False
        self._turns = TaskTurns(loop_budget, on_crash)
        self._waiters = PacedWaiters(self._turns)
        self._pause_seconds = 0.0
        self._not_before = 0.0
        self._problem = ""

    async def current(self) -> AuthData | None:
        """Return the token, fetching a new one if needed; raise CredentialsUnavailable."""
        now = asyncio.get_running_loop().time()
        if self._token is None or now >= self._good_until(self._renewed_at):
            if now >= self._not_before and not self._fetching:
                self._begin()
            if self._fetching and (self._token is None or now >= self._good_until(0.0)):
                await self._waiters.wait()
        token = self._token
        if token is None or asyncio.get_running_loop().time() >= self._good_until(0.0):
            raise CredentialsUnavailable(f"no token for brokers: {self._problem or 'the issuer gave an expired one'}")
        return AuthData("token", token.text.encode())

    def tls_files(self) -> tuple[str, str] | None:
        """Return None: the credentials are no certificate."""
        return None

    async def close(self) -> None:
        """Cancel a fetch under way."""
        self._scope.cancel()
        await self._scope.emptied()
        self._turns.finish()

    def _good_until(self, left: float) -> float:
        assert self._token is not None
        return self._fetched_at + self._token.life_seconds * (1.0 - left)

    def _begin(self) -> None:
        self._fetching = True
        self._scope.start(self._work(), self._over)

    def _over(self) -> None:
        self._fetching = False
        self._waiters.wake()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        # Record a failure until the fetch has succeeded, so that the pause holds however the fetch ends.
        # A waiter that still stands in line for its turn after the last fetch says why that fetch failed.
        self._problem = self._problem or "the issuer was not heard"
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause_seconds))
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                token = await self._fetch()
        except CredentialsUnavailable as error:
            self._problem = str(error)
        except TimeoutError:
            self._problem = f"the issuer did not answer within {FETCH_SECONDS:g} s"
        else:
            self._token, self._fetched_at = token, loop.time()
            self._pause_seconds, self._problem = 0.0, ""
            self._renewed_at = RENEWED_AT + RENEWED_EARLIER * self._draw()
        finally:
            self._not_before = loop.time() + max(LEAST_PAUSE_SECONDS, spread(self._pause_seconds, self._draw))


class HttpIssuer:
    """Fetches tokens by HTTP, at the endpoint in the issuer's discovery document."""

    def __init__(self, settings: OAuth2Parameters) -> None:
        self._settings = settings

    async def fetch(self) -> Token:
        """Return a new token; raise CredentialsUnavailable."""
        # Imported here, because the import takes 100 ms and only this plugin needs aiohttp.
        import aiohttp

        client_id, client_secret = read_key(self._settings.private_key)
        try:
            timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
            connector = aiohttp.TCPConnector(ssl=self._trust(), limit=1, socket_factory=issuer_socket)
            # A few KB could become GB otherwise.
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            async with aiohttp.ClientSession(
                timeout=timeout, connector=connector, headers=headers, auto_decompress=False
            ) as http:
                found = await self._document(http, self._settings.issuer_url + self._settings.well_known_path)
                endpoint = found.get("token_endpoint")
                if not isinstance(endpoint, str):
                    raise CredentialsUnavailable("the issuer's discovery document has no token_endpoint")
                self._expect_as_safe(endpoint)
                return _token(await self._document(http, endpoint, self._form(client_id, client_secret)))
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            # Only the type of the error is shown: texts of HTTP errors quote URLs and headers.
            raise CredentialsUnavailable(f"the issuer cannot be asked: {type(error).__name__}") from None

    def _form(self, client_id: str, client_secret: str) -> dict[str, str]:
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
        if self._settings.audience:
            form["audience"] = self._settings.audience
        if self._settings.scope:
            form["scope"] = self._settings.scope
        return form

    def _expect_as_safe(self, url: str) -> None:
        """Raise CredentialsUnavailable for an address without https that an issuer with https leads to."""
        if self._settings.issuer_url.lower().startswith("https://") and not url.lower().startswith("https://"):
            raise CredentialsUnavailable("the issuer has https and leads to an address without https")

    def _trust(self) -> ssl.SSLContext | bool:
        path = self._settings.trust_certs_file_path
        return ssl.create_default_context(cafile=path) if path else True

    async def _document(self, http: Any, url: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        # Redirects are off for the form: the secret must not be sent to another address.
        asked = http.get(url) if form is None else http.post(url, data=form, allow_redirects=False)
        async with asked as answer:
            for hop in (*answer.history, answer):
                self._expect_as_safe(str(hop.url))
            body = await answer.content.read(MAX_ANSWER_BYTES + 1)
            while len(body) <= MAX_ANSWER_BYTES and (more := await answer.content.read(MAX_ANSWER_BYTES)):
                body += more
            if answer.status != 200:
                raise CredentialsUnavailable(f"the issuer answered with status {answer.status}{_error_in(body)}")
        if len(body) > MAX_ANSWER_BYTES:
            raise CredentialsUnavailable(f"the issuer's answer has more than {MAX_ANSWER_BYTES} bytes")
        document = json.loads(body)
        if not isinstance(document, dict):
            raise CredentialsUnavailable("the issuer's answer is no JSON object")
        return document


def _token(document: Mapping[str, Any]) -> Token:
    text, life = document.get("access_token"), document.get("expires_in", DEFAULT_LIFE_SECONDS)
    if not isinstance(text, str) or not text:
        raise CredentialsUnavailable("the issuer's answer has no access_token")
    if not _TOKEN.fullmatch(text):
        raise CredentialsUnavailable("the issuer's answer has an access_token that is not one printable word")
    if isinstance(life, str) and life.isdigit():
        life = int(life)
    if isinstance(life, bool) or not isinstance(life, int | float) or not 0 < life < 1e9:
        raise CredentialsUnavailable("the issuer's answer has an expires_in that is no number of seconds")
    return Token(text, float(life))


def _error_in(body: bytes) -> str:
    """Return the error code of RFC 6749, which is a fixed word, and no other part of an answer."""
    try:
        code = json.loads(body).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    known = code if isinstance(code, str) and code.isascii() and code.replace("_", "").isalpha() else ""
    return f" ({known[:40]})" if known else ""


def read_key(url: str) -> tuple[str, str]:
    """Return client id and secret of a key file of the Java client; raise CredentialsUnavailable."""
    data = read_file(path_of(url)) if url.startswith("file:") else _data_url(url)
    try:
        key = json.loads(data)
    except (ValueError, RecursionError):
        raise CredentialsUnavailable(f"{PARAMETERS}: privateKey is no JSON") from None
    found = (key.get("client_id"), key.get("client_secret")) if isinstance(key, dict) else (None, None)
    if not isinstance(found[0], str) or not isinstance(found[1], str):
        raise CredentialsUnavailable(f"{PARAMETERS}: privateKey has no client_id and client_secret")
    return found[0], found[1]


def _data_url(url: str) -> bytes:
    head, _, text = url.partition(",")
    if not head.endswith(";base64"):
        return unquote_to_bytes(text)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise CredentialsUnavailable(f"{PARAMETERS}: privateKey is no base64") from None
