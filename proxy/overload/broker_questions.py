"""Ask brokers for their memory, and for the backlog of topics, over their admin port, with the proxy's credentials.

Rule: only configured web services are asked; redirects go nowhere, answers are bounded in bytes, values and time. A
broker whose metrics are refused is asked for its load report; if that is refused too, its memory is not known.
"""

import importlib
import ssl
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from proxy.auth.own.broker_credentials import BrokerCredentials, authorization_header
from proxy.core.errors import CredentialsUnavailable
from proxy.core.threads import in_thread
from proxy.overload.bounds import LARGEST_METRICS_BYTES, LARGEST_STATS_BYTES, MOST_BACKLOGS
from proxy.overload.broker_statistics import (
    BrokerMetrics,
    StatisticsRefused,
    StatisticsUnavailable,
    backlog_sample,
    load_report_sample,
)
from proxy.overload.samples import BacklogSample, BrokerSample
from proxy.overload.slices import in_slices

METRICS_PATH: Final = "/admin/v2/broker-stats/metrics"
LOAD_PATH: Final = "/admin/v2/broker-stats/load-report"
ANSWER_SECONDS: Final = 3.0
_IMPORT_SECONDS: Final = 30.0
_DOMAINS: Final = ("persistent", "non-persistent")


class BrokerQuestions:
    """Asks the web services at `urls`; `tls` returns the context in force.

    `load_connector` is called in a thread, imports what it needs, and returns what makes a connector of a context.
    """

    def __init__(
        self,
        urls: tuple[str, ...],
        own: BrokerCredentials,
        tls: Callable[[], ssl.SSLContext] | None,
        load_connector: Callable[[], Callable[[Any], Any]],
    ) -> None:
        self.urls = urls
        self._own = own
        self._tls = tls
        self._load_connector = load_connector
        # The web service that has told a topic's backlog, of as many topics as are asked for: the others say no, or
        # nothing for seconds.
        self._owners: dict[str, str] = {}

    async def memory(self, url: str) -> BrokerSample:
        """Return the memory of the broker at a URL; raise StatisticsRefused or StatisticsUnavailable."""
        try:
            body = await self._get(url, METRICS_PATH, LARGEST_METRICS_BYTES)
        except StatisticsRefused:
            return load_report_sample(await self._get(url, LOAD_PATH, LARGEST_STATS_BYTES))
        metrics = BrokerMetrics()
        await in_slices(metrics.read(body), 1)
        return metrics.sample()

    async def backlog(self, topic: str) -> BacklogSample:
        """Return the backlog of a topic; raise StatisticsUnavailable."""
        path, why = stats_path(topic), ""
        owner = self._owners.pop(topic, "")
        for url in sorted(self.urls, key=lambda each: each != owner):
            try:
                found = backlog_sample(await self._get(url, path, LARGEST_STATS_BYTES))
            except StatisticsUnavailable as error:
                # Its text alone: the frames of its traceback have the answer, and are kept until garbage is collected.
                why = str(error)
            else:
                if len(self._owners) >= MOST_BACKLOGS:
                    # The topic that was asked for longest ago.
                    del self._owners[next(iter(self._owners))]
                self._owners[topic] = url
                return found
        raise StatisticsUnavailable(why)

    async def _get(self, url: str, path: str, most_bytes: int) -> bytes:
        try:
            # The import takes 100 ms, which must not stop the event loop.
            aiohttp: Any = await in_thread(lambda: importlib.import_module("aiohttp"), "import", _IMPORT_SECONDS)
            connector_for = await in_thread(self._load_connector, "import", _IMPORT_SECONDS)
            authorization = await authorization_header(self._own)
        except TimeoutError:
            raise StatisticsUnavailable(f"the HTTP client was not loaded within {_IMPORT_SECONDS:g} s") from None
        except CredentialsUnavailable as error:
            raise StatisticsUnavailable(str(error)) from error
        # A small compressed answer may be a large one, which is made in one step of the loop.
        headers = {"Accept-Encoding": "identity"}
        if authorization is not None:
            headers["Authorization"] = authorization
        connector = connector_for(self._tls() if self._tls is not None else True)
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
                ) as http,
                http.get(url.rstrip("/") + path, headers=headers, allow_redirects=False) as answer,
            ):
                body = await _body(answer, most_bytes)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # Only the type of the error is shown: texts of HTTP errors quote headers.
            raise StatisticsUnavailable(f"{url}: {type(error).__name__}") from None
        if answer.status in (401, 403):
            raise StatisticsRefused(f"{url}: got status {answer.status} for the role of the proxy")
        if answer.status != 200:
            raise StatisticsUnavailable(f"{url}: got status {answer.status}, expected 200")
        return body


async def _body(answer: Any, most_bytes: int) -> bytes:
    body = bytearray()
    while piece := await answer.content.read(65_536):
        body += piece
        if len(body) > most_bytes:
            raise ValueError("the answer is too long")
    return bytes(body)


def stats_path(topic: str) -> str:
    """Return the path of a topic's statistics; raise StatisticsUnavailable for a name that is none of a topic."""
    domain, separator, name = topic.partition("://")
    if not separator:
        domain, name = "persistent", topic
    parts = name.split("/", 2)
    if domain not in _DOMAINS or len(parts) != 3 or not all(parts) or {".", ".."} & set(name.split("/")):
        raise StatisticsUnavailable("got no name of a topic, expected persistent://tenant/namespace/topic")
    try:
        return f"/admin/v2/{domain}/" + "/".join(quote(part, safe="") for part in parts) + "/stats"
    except UnicodeEncodeError:
        raise StatisticsUnavailable("the name of the topic is no text") from None
