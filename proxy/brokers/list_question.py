"""Ask a broker's web service for the list of active brokers (`GET /admin/v2/brokers`).

The question carries the proxy's own credentials, to configured web services only; redirects are not followed. The
answer is a JSON list of `host:port`, where the port is that of a web service.
"""

import importlib
import json
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.brokers.broker_list import ListRefused, ListUnavailable
from proxy.brokers.known_brokers import LONGEST_HOST
from proxy.core.errors import CredentialsUnavailable
from proxy.core.threads import NoThread, in_thread

PATH: Final = "/admin/v2/brokers"
ANSWER_SECONDS: Final = 3.0
LARGEST_ANSWER_BYTES: Final = 256 * 1024
MOST_HOSTS: Final = 4096
_IMPORT_SECONDS: Final = 30.0


class ListQuestion:
    """Asks the web services at `urls`, the one that answered last first; `tls` returns the context in force.

    `load_connector` is called in a thread, imports what it needs, and returns what makes a connector of a context.
    """

    def __init__(
        self,
        urls: tuple[str, ...],
        cluster: str,
        own: BrokerCredentials,
        tls: Callable[[], ssl.SSLContext] | None,
        load_connector: Callable[[], Callable[[Any], Any]],
    ) -> None:
        self._urls = list(urls)
        self._cluster = cluster
        self._own = own
        self._tls = tls
        self._load_connector = load_connector

    async def ask(self) -> frozenset[str]:
        """Return the hosts of the list in lower case; raise ListRefused or ListUnavailable."""
        try:
            # The import takes 100 ms, which must not stop the event loop.
            aiohttp: Any = await in_thread(lambda: importlib.import_module("aiohttp"), "import", _IMPORT_SECONDS)
            connector_for = await in_thread(self._load_connector, "import", _IMPORT_SECONDS)
            authorization = await authorization_header(self._own)
        except TimeoutError:
            raise ListUnavailable(f"the HTTP client was not loaded within {_IMPORT_SECONDS:g} s") from None
        except NoThread as error:
            raise ListUnavailable(str(error.strerror)) from None
        except CredentialsUnavailable as error:
            raise ListUnavailable(str(error)) from error
        headers = {} if authorization is None else {"Authorization": authorization}
        failure = ListUnavailable("no web service is configured")
        for url in list(self._urls):
            try:
                hosts = await self._asked(aiohttp, connector_for, url, headers)
            except ListUnavailable as error:
                failure = error
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            return hosts
        raise failure

    async def _asked(
        self, aiohttp: Any, connector_for: Callable[[Any], Any], url: str, headers: dict[str, str]
    ) -> frozenset[str]:
        context = self._tls() if self._tls is not None else True
        base = url.rstrip("/") + PATH
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            connector = connector_for(context)
            async with aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
            ) as http:
                status, body = await self._get(http, base, headers)
                if status == 404 and self._cluster:
                    # Brokers before 2.10 list the brokers of a named cluster only.
                    status, body = await self._get(http, f"{base}/{quote(self._cluster, safe='')}", headers)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # Only the type of the error is shown: texts of HTTP errors quote headers.
            raise ListUnavailable(f"{url}: {type(error).__name__}") from None
        if status in (401, 403):
            raise ListRefused(f"{url}: got status {status} for the role of brokerClientAuthenticationPlugin")
        if status != 200:
            raise ListUnavailable(f"{url}: got status {status}, expected 200")
        return _hosts(url, body)

    async def _get(self, http: Any, url: str, headers: dict[str, str]) -> tuple[int, bytes]:
        async with http.get(url, headers=headers, allow_redirects=False) as answer:
            body = bytearray()
            while piece := await answer.content.read(LARGEST_ANSWER_BYTES):
                body += piece
                if len(body) > LARGEST_ANSWER_BYTES:
                    raise ValueError("the answer is too long")
            return answer.status, bytes(body)


def _hosts(url: str, body: bytes) -> frozenset[str]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or len(found) > MOST_HOSTS or not all(isinstance(entry, str) for entry in found):
        raise ListUnavailable(f"{url}: the answer is no list of at most {MOST_HOSTS} brokers")
    # An entry is host:port; a host with colons may stand in brackets.
    hosts = (entry.rpartition(":")[0].removeprefix("[").removesuffix("]").lower() for entry in found)
    return frozenset(host for host in hosts if host and len(host) <= LONGEST_HOST)
