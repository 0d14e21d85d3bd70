"""What this proxy serves itself on its web ports: a plain table of pages, from which the documents are made, too.

Rule: a page knows nothing of aiohttp, and costs Pulsar traffic no more than a few milliseconds.
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
    """Who may see a page, if `authenticationEnabled`."""

    ANYBODY = "anybody"
    METRICS = "authenticated clients, anybody with authenticateMetricsEndpoint=false"
    AUTHENTICATED = "authenticated clients"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What a page may know of a request: its client, and the values of the `{names}` in its path."""

    client: WebClient
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a page answers."""

    body: bytes
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def line(cls, text: str, status: int = 200) -> "PageAnswer":
        """Give a line of text."""
        return cls(f"{text}\n".encode(), status)


Serve = Callable[[PageRequest], Awaitable[PageAnswer]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `path` may have segments such as `{level}`."""

    method: str
    path: str
    serve: Serve
    access: Access
    doc: str
    origin: str = "ours"


class PageTable:
    """The pages of this proxy; a GET page answers HEAD, too."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def add(self, page: Page) -> None:
        """Serve one more page; raises ValueError if its path is taken."""
        if any(known.path == page.path and known.method == page.method for known in self._pages):
            raise ValueError(f"{page.method} {page.path} is served already")
        self._pages.append(page)

    def find(self, method: str, segments: list[str]) -> tuple[Page, dict[str, str]] | tuple[None, tuple[str, ...]]:
        """Give the page for a path and the values in it; else None, and the methods that the path has."""
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
    """Whether this proxy should get new clients; set by the server, read by the probes."""

    __slots__ = ("draining", "listening")

    def __init__(self) -> None:
        self.listening = False
        self.draining = False

    @property
    def obstacle(self) -> str | None:
        """Why not, or None when ready."""
        if self.draining:
            return "draining"
        return None if self.listening else "not listening yet"


def own_pages(status_file: str, render_metrics: Callable[[], bytes], readiness: Readiness) -> PageTable:
    """Make the table of the pages that every proxy has."""

    async def metrics(_: PageRequest) -> PageAnswer:
        return PageAnswer(render_metrics(), content_type=METRICS_TYPE)

    async def health(_: PageRequest) -> PageAnswer:
        return PageAnswer.line("OK")

    async def ready(_: PageRequest) -> PageAnswer:
        obstacle = readiness.obstacle
        return PageAnswer.line("OK") if obstacle is None else PageAnswer.line(obstacle, 503)

    async def status(_: PageRequest) -> PageAnswer:
        # Upstream's proxy: 503 while it is not ready, 404 when the file is taken away to drain by hand.
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
    """Make the page of a document: for those whom `settings` let see it, and never kept by caches."""

    async def serve(request: PageRequest) -> PageAnswer:
        status, body = refusal(settings, request.client.role) or document.handler(request.values)
        headers = (("Cache-Control", "no-store"),)
        return PageAnswer(b"" if status == 204 else orjson.dumps(body), status, JSON, headers)

    return Page(document.method, document.path, serve, Access.AUTHENTICATED, document.doc, document.origin)


def _stands(path: str) -> bool:
    return os.path.isfile(path)
