"""Ask web services of brokers, one question at a time, with the proxy's own credentials.

Rule: only configured web services are asked. Redirects go nowhere, and answers are bounded in bytes and time.
"""

import importlib
import ssl
from collections.abc import Callable
from typing import Any, Final

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.core.errors import CredentialsUnavailable, ProxyError
from proxy.core.threads import NoThread, in_thread

ANSWER_SECONDS: Final = 3.0
_IMPORT_SECONDS: Final = 30.0


class AdminUnavailable(ProxyError):
    """A web service gave no answer that can be used; the text says why. `status`: that of HTTP, 0 without one."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class AdminRefused(AdminUnavailable):
    """The role of the proxy has no right to the answer."""


class AdminPort:
    """Asks with the credentials `own`; `tls` returns the context in force.

    `load_connector` is called in a thread, imports what it needs, and returns what makes a connector of a context.
    """

    def __init__(
        self,
        own: BrokerCredentials,
        tls: Callable[[], ssl.SSLContext] | None,
        load_connector: Callable[[], Callable[[Any], Any]],
    ) -> None:
        self._own = own
        self._tls = tls
        self._load_connector = load_connector

    async def get(self, url: str, path: str, most_bytes: int) -> bytes:
        """Return the answer of the web service at a URL; raise AdminRefused or AdminUnavailable."""
        try:
            # The import takes 100 ms, which must not stop the event loop.
            aiohttp: Any = await in_thread(lambda: importlib.import_module("aiohttp"), "import", _IMPORT_SECONDS)
            connector_for = await in_thread(self._load_connector, "import", _IMPORT_SECONDS)
            authorization = await authorization_header(self._own)
        except TimeoutError:
            raise AdminUnavailable(f"the HTTP client was not loaded within {_IMPORT_SECONDS:g} s") from None
        except NoThread as error:
            raise AdminUnavailable(str(error.strerror)) from None
        except CredentialsUnavailable as error:
            raise AdminUnavailable(str(error)) from error
        # A small compressed answer may be a large one, which is made in one step of the loop.
        headers = {"Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector_for(self._tls() if self._tls is not None else True), timeout=timeout,
                    cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
                ) as http,
                http.get(url.rstrip("/") + path, headers=headers, allow_redirects=False) as answer,
            ):  # fmt: skip
                body = await _body(answer, most_bytes)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # Only the type of the error is shown: texts of HTTP errors quote headers.
            raise AdminUnavailable(f"{url}: {type(error).__name__}") from None
        if answer.status in (401, 403):
            text = f"{url}: got status {answer.status} for the role of brokerClientAuthenticationPlugin"
            raise AdminRefused(text, answer.status)
        if answer.status != 200:
            raise AdminUnavailable(f"{url}: got status {answer.status}, expected 200", answer.status)
        return body


async def _body(answer: Any, most_bytes: int) -> bytes:
    body = bytearray()
    while piece := await answer.content.read(65_536):
        body += piece
        if len(body) > most_bytes:
            raise ValueError("the answer is too long")
    return bytes(body)
