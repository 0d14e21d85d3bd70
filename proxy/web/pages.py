"""The pages that the proxy serves itself on its web ports, as one table, from which their documentation is generated.

Rule: a page does not import aiohttp, and delays Pulsar traffic by a few milliseconds at most.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import orjson

from proxy.web.http.clients import WebClient
from proxy.web.http.documents import Document, GuardSettings, refusal
from proxy.web.http.errors import JSON, TEXT
from proxy.web.http.paths import values_in

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Access(Enum):
    """The clients that may see a page if `authenticationEnabled` is set."""

    ANYBODY = "anybody"
    METRICS = "authenticated clients, anybody with authenticateMetricsEndpoint=false"
    AUTHENTICATED = "authenticated clients"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The part of a request that a page gets: its client, and the values of the `{names}` in its path."""

    client: WebClient
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The response of a page."""

    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def line(cls, text: str, status: int = 200) -> "PageAnswer":
        """Return a response of one line of text."""
        return cls(f"{text}\n".encode(), status)


Serve = Callable[[PageRequest], Awaitable[PageAnswer]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the proxy; `path` may have segments such as `{level}`."""

    method: str
    path: str
    serve: Serve
    access: Access
    doc: str
    origin: str = "ours"


class PageTable:
    """The pages of this proxy; a page for GET also answers HEAD."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def add(self, page: Page) -> None:
        """Add a page; raises ValueError if its method and path are taken."""
        if any(known.path == page.path and known.method == page.method for known in self._pages):
            raise ValueError(f"{page.method} {page.path} is served already")
        self._pages.append(page)

    def find(self, method: str, segments: list[str]) -> tuple[Page, dict[str, str]] | tuple[None, tuple[str, ...]]:
        """Return the page for a path and the values in the path, or None and the methods that the path has."""
        methods: list[str] = []
        for page in self._pages:
            values = values_in(page.path, segments)
            if values is None:
                continue
            if method == page.method or (method == "HEAD" and page.method == "GET"):
                return page, values
            methods.append(page.method)
        return None, tuple(methods)


class Readiness:
    """Set by the server and read by probes: whether this proxy should get new clients."""

    __slots__ = ("draining", "listening")

    def __init__(self) -> None:
        self.listening = False
        self.draining = False

    @property
    def obstacle(self) -> str | None:
        """The reason why the proxy is not ready, or None if it is."""
        if self.draining:
            return "draining"
        return None if self.listening else "not listening yet"


def own_pages(status_file: str, render_metrics: Callable[[], bytes], readiness: Readiness) -> PageTable:
    """Return the pages that every proxy has."""

    async def metrics(_: PageRequest) -> PageAnswer:
        return PageAnswer(render_metrics(), content_type=METRICS_TYPE)

    async def health(_: PageRequest) -> PageAnswer:
        return PageAnswer.line("OK")

    async def ready(_: PageRequest) -> PageAnswer:
        obstacle = readiness.obstacle
        return PageAnswer.line("OK") if obstacle is None else PageAnswer.line(obstacle, 503)

    async def status(_: PageRequest) -> PageAnswer:
        # As Apache Pulsar's proxy does: 503 while not ready, 404 once somebody removes the file to drain by hand.
        if readiness.obstacle is not None:
            return PageAnswer.line(readiness.obstacle, 503)
        if status_file and not _stands(status_file):
            return PageAnswer.line("statusFilePath: no such file", 404)
        return PageAnswer.line("OK")

    table = PageTable()
    table.add(Page("GET", "/metrics", metrics, Access.METRICS, "Metrics for Prometheus.", "pulsar"))
    table.add(Page("GET", "/healthz", health, Access.ANYBODY, "Whether the process lives."))
    table.add(Page("GET", "/readyz", ready, Access.ANYBODY, "Whether it should get new clients."))
    table.add(Page("GET", "/status.html", status, Access.ANYBODY, "The same, and `statusFilePath`.", "pulsar"))
    return table


def document_page(document: Document, settings: GuardSettings) -> Page:
    """Return the page that serves a document to the clients that `settings` permit; caches must not store it."""

    async def serve(request: PageRequest) -> PageAnswer:
        status, body = refusal(settings, request.client.role) or document.handler(request.values)
        headers = (("Cache-Control", "no-store"),)
        return PageAnswer(b"" if status == 204 else orjson.dumps(body), status, JSON, headers)

    return Page(document.method, document.path, serve, Access.AUTHENTICATED, document.doc, document.origin)


def _stands(path: str) -> bool:
    return os.path.isfile(path)
