"""The pages that the proxy serves itself on its web ports, as one table, from which their documentation is generated.

Rule: a page does not import aiohttp, and delays Pulsar traffic by a few milliseconds at most.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final

import orjson

from proxy.config.config import Config
from proxy.core.threads import in_thread
from proxy.web.http.clients import Guard, WebClient
from proxy.web.http.documents import Answer, Document, JsonRows, refusal
from proxy.web.http.errors import JSON, TEXT
from proxy.web.http.paths import values_in
from proxy.web.http.renderings import Content, Rendered, Renderings
from proxy.web.readiness import Readiness

# A look at a file takes no second, unless its disk hangs.
LOOK_SECONDS: Final = 10.0
ROWS_A_PIECE: Final = 256
# Says whether this proxy should get new clients, as balancers ask for it.
SERVER_PAGE: Final = "/status.html"
# The pages of `metricsPort`: nothing there is passed on, changed, or shows the configuration.
METRICS_PAGES: Final = ("/metrics", "/healthz", "/readyz", SERVER_PAGE)
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Access(Enum):
    """The clients that may see a page if `authenticationEnabled` is set."""

    ANYBODY = "anybody"
    METRICS = "authenticated clients, anybody with authenticateMetricsEndpoint=false"
    AUTHENTICATED = "authenticated clients"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The part of a request that a page gets: its client, the values of the `{names}` in its path and of its query, and
    gzip or not.
    """

    client: WebClient
    values: dict[str, str] = field(default_factory=dict)
    accepts_gzip: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    # Whether a browser or tool on this machine asks, without a proxy in between.
    is_local: Callable[[], bool] = lambda: False


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

    @classmethod
    def shared(
        cls, rendered: Rendered, request: PageRequest, content_type: str, headers: tuple[tuple[str, str], ...] = ()
    ) -> "PageAnswer":
        """Return a response with a shared content, in the form that the client takes."""
        headers = (*headers, ("Vary", "Accept-Encoding"))
        if rendered.packed is not None and request.accepts_gzip:
            headers = (*headers, ("Content-Encoding", "gzip"))
            return cls(rendered.packed, rendered.status, content_type, headers)
        return cls(rendered.body, rendered.status, content_type, headers)


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
    """The pages of this proxy; a page for GET also answers HEAD, and each path answers OPTIONS.

    `guard` says who a client is, here and where its request is passed on; None if clients need not authenticate.
    """

    def __init__(self, guard: Guard | None = None, renderings: Renderings | None = None) -> None:
        self.guard = guard
        self.renderings = renderings or Renderings()
        self._pages: list[Page] = []

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def add(self, page: Page) -> None:
        """Add a page; raises ValueError if its method and path are taken."""
        if any(known.path == page.path and known.method == page.method for known in self._pages):
            raise ValueError(f"{page.method} {page.path} is served already")
        self._pages.append(page)

    def only(self, paths: Collection[str]) -> "PageTable":
        """Return a table of some of these pages, which are rendered once for both."""
        table = PageTable(self.guard, self.renderings)
        table._pages = [page for page in self._pages if page.path in paths]
        return table

    def without(self, path: str) -> "PageTable":
        """Return a table of all of these pages but one."""
        return self.only({page.path for page in self._pages} - {path})

    def at(self, segments: list[str]) -> dict[str, tuple[Page, dict[str, str]]]:
        """Return by method the page that answers at a path, and the values in the path.

        OPTIONS is answered by the page for GET, if there is one: it says what may be asked, and how the page is.
        """
        found: dict[str, tuple[Page, dict[str, str]]] = {}
        for page in self._pages:
            values = values_in(page.path, segments)
            if values is not None:
                found[page.method] = page, values
        if found:
            if "GET" in found:
                found["HEAD"] = found["GET"]
            found["OPTIONS"] = found.get("GET") or next(iter(found.values()))
        return found


def own_pages(
    status_file: str,
    metrics_pieces: Callable[[], Iterable[bytes]],
    readiness: Readiness,
    guard: Guard | None = None,
) -> PageTable:
    """Return the pages that every proxy has."""
    table = PageTable(guard)

    async def make_metrics() -> Content:
        return Content(200, metrics_pieces())

    async def look_for_file() -> Content:
        # The disk may hang, and with it the thread: one thread for all clients.
        stands = await in_thread(lambda: os.path.isfile(status_file), "status file", LOOK_SECONDS)
        return Content(200, (b"OK\n",)) if stands else Content(404, (b"statusFilePath: no such file\n",))

    shared_metrics, shared_file = table.renderings.of(make_metrics), table.renderings.of(look_for_file)

    async def metrics(request: PageRequest) -> PageAnswer:
        return PageAnswer.shared(await shared_metrics.get(), request, METRICS_TYPE)

    async def health(_: PageRequest) -> PageAnswer:
        return PageAnswer.line("OK") if readiness.stuck is None else PageAnswer.line(readiness.stuck, 503)

    async def ready(request: PageRequest) -> PageAnswer:
        obstacle = readiness.obstacle
        if "verbose" in request.query:
            return PageAnswer.line(readiness.details(), 200 if obstacle is None else 503)
        return PageAnswer.line("OK") if obstacle is None else PageAnswer.line(obstacle, 503)

    async def status(request: PageRequest) -> PageAnswer:
        # As Apache Pulsar's proxy does: 503 while not ready, 404 once somebody removes the file to drain by hand.
        if readiness.obstacle is not None:
            return PageAnswer.line(readiness.obstacle, 503)
        if status_file:
            return PageAnswer.shared(await shared_file.get(), request, TEXT)
        return PageAnswer.line("OK")

    table.add(Page("GET", "/metrics", metrics, Access.METRICS, "Metrics for Prometheus.", "pulsar"))
    table.add(Page("GET", "/healthz", health, Access.ANYBODY, "Whether the process lives."))
    table.add(
        Page(
            "GET",
            "/readyz",
            ready,
            Access.ANYBODY,
            "Whether it should get new clients; with `?verbose` also why, and how many brokers are in which state.",
        )
    )
    table.add(Page("GET", SERVER_PAGE, status, Access.ANYBODY, "The same, and `statusFilePath`.", "pulsar"))
    return table


def document_page(document: Document, config: Config, renderings: Renderings) -> Page:
    """Return the page that serves a document to clients that may see it; caches must not store it."""
    headers = (("Cache-Control", "no-store"),)

    async def make() -> Content:
        return _content(document.handler({}))

    shared = renderings.of(make) if document.method == "GET" and "{" not in document.path else None

    async def serve(request: PageRequest) -> PageAnswer:
        refused = refusal(config, request.client.role)
        if refused is None and shared is not None:
            return PageAnswer.shared(await shared.get(), request, JSON, headers)
        answer = refused or document.handler(request.values)
        if refused is None and document.method != "GET":
            renderings.forget()
        found = _content(answer)
        return PageAnswer(b"".join(found.pieces), found.status, JSON, headers)

    return Page(document.method, document.path, serve, Access.AUTHENTICATED, document.doc, document.origin)


def _content(answer: Answer) -> Content:
    if answer.status == 204:
        return Content(204, ())
    if isinstance(answer.body, JsonRows):
        return Content(answer.status, _array(answer.body))
    return Content(answer.status, (orjson.dumps(answer.body),))


def _array(rows: JsonRows) -> Iterator[bytes]:
    opening = b"["
    while some := list(islice(rows.each, ROWS_A_PIECE)):
        yield opening + orjson.dumps(some)[1:-1]
        opening = b","
    yield b"]" if opening == b"," else b"[]"
