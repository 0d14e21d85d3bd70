"""The HTTP server: validate a request, then answer it with a page of this proxy or pass it on to a broker.

Rules: connections are bounded and take turns (`connection.py`). A request that two servers could read differently is
refused. A client that leaves ends the work for its request. No exception of one request reaches another request.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from aiohttp import web
from multidict import CIMultiDict

from proxy.config.core import Core
from proxy.core.errors import DisconnectCause, ProxyError
from proxy.net.hangup import HangupWatcher
from proxy.net.trusted_balancers import TrustedBalancers
from proxy.web.access_log import AccessEntry, AccessLog
from proxy.web.connection import HEADER_REFUSAL, READ_AHEAD_BYTES, TOO_LARGE, HttpConnection, HttpServer
from proxy.web.forward.gate import IN_WORK, Gate
from proxy.web.forward.headers import extra_headers, finish
from proxy.web.forward.routes import BadPath, Destination, RouteTable, checked_segments
from proxy.web.forward.settings import WebLimits, WebTargets
from proxy.web.forward.visits import Visit
from proxy.web.forward.websockets import WebSocketTunnels
from proxy.web.http.clients import asks_on_loopback, certificate_of, client_of
from proxy.web.http.errors import JSON, REFUSED, HttpRefused, count_answer, retry_after
from proxy.web.http.renderings import accepts_gzip
from proxy.web.pages import SERVER_PAGE, Access, Page, PageAnswer, PageRequest, PageTable

if TYPE_CHECKING:
    from proxy.web.forward.reverse_proxy import ReverseProxy

IDLE_SECONDS: Final = 75.0  # above the usual scrape interval of 60 s; also the time for a request's headers
MOST_HEADERS: Final = 100
LINGERING_SECONDS: Final = 1.0
# A page, or the beginning of a request that is passed on, takes about this long.
REQUEST_SECONDS: Final = 0.0003
# Each byte of a path takes at most so long: one of nothing but %25 is decoded four times.
PATH_BYTE_SECONDS: Final = 0.0000002
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_BUSY: Final = "too many requests are in progress, send it again later"


class Site:
    """Answers requests by own pages, and passes others on if there is a reverse proxy."""

    def __init__(
        self,
        core: Core,
        pages: PageTable,
        gate: Gate,
        access: AccessLog,
        hangup: HangupWatcher,
        reverse_proxy: "ReverseProxy | None" = None,
    ) -> None:
        config = core.config
        self._limits = WebLimits.of(config)
        self.pages = pages
        self._gate = gate
        self._counters, self._loop_budget = core.counters, core.loop_budget
        core.counters.show(IN_WORK, lambda: gate.in_work)
        self._access = access
        self._hangup = hangup
        self._guard = pages.guard
        self._guard_metrics = config.authenticate_metrics_endpoint
        balancers = TrustedBalancers(config.trusted_load_balancer_ip_addresses)
        self._forwarding_balancers = balancers if config.web_service_trust_x_forwarded_for else None
        self._extra_headers = extra_headers(config.proxy_http_response_headers_json)
        self._routes = RouteTable(() if reverse_proxy is None else WebTargets.of(config).extra)
        self._reverse_proxy = reverse_proxy
        self._tunnels = None if reverse_proxy is None else WebSocketTunnels(core, reverse_proxy, pages.guard)

    def apply(self, limits: WebLimits) -> None:
        """Apply changed limits to new requests."""
        self._limits = limits

    def server(self, limits: WebLimits) -> HttpServer:
        """Return a new server within `limits`, whose connections this site answers."""
        return HttpServer(
            self.answer, self._counters, self._loop_budget, limits.max_connections,
            handler_cancellation=True, access_log=None, keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGERING_SECONDS, auto_decompress=False, max_headers=MOST_HEADERS,
            max_line_size=limits.max_header_bytes, max_field_size=limits.max_header_bytes,
            read_bufsize=min(READ_AHEAD_BYTES, limits.buffer_bytes // 2), tcp_keepalive=False,
        )  # fmt: skip

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request, with an error if need be, and log it."""
        connection = request.protocol
        server = connection._manager
        if not isinstance(server, HttpServer) or not isinstance(connection, HttpConnection):
            return await self._logged(request)
        server.asks(connection)
        # The tasks of all connections whose requests have come run in one iteration. The time for a path is charged
        # before the work: a turn is over when its task runs.
        seconds = REQUEST_SECONDS + len(request.raw_path) * PATH_BYTE_SECONDS
        await self._loop_budget.client_turn(connection.host, seconds)
        try:
            return await self._logged(request)
        finally:
            server.asks(connection)

    async def _logged(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        accepted_from = connection.accepted_from if isinstance(connection, HttpConnection) else "?"
        entry = self._access.begin(client_of(request, accepted_from, self._forwarding_balancers))
        response: web.StreamResponse | None = None
        try:
            response = await self._answer_or_refusal(request, entry)
            return response
        finally:
            self._access.end(entry, request, response)

    async def _answer_or_refusal(self, request: web.BaseRequest, entry: AccessEntry) -> web.StreamResponse:
        try:
            return await self._answer(request, entry)
        except HttpRefused as refused:
            return self._refusal(request, entry, refused)
        except ConnectionError:
            raise
        except ProxyError as error:
            return self._refusal(request, entry, HttpRefused(502, str(error), "failed"))
        except Exception as error:
            self._counters.internal_error(error, "web")
            reason = "internal error of the proxy, see its log"
            return self._refusal(request, entry, HttpRefused(500, reason, "internal"))

    async def _answer(self, request: web.BaseRequest, entry: AccessEntry) -> web.StreamResponse:
        segments = self._checked(request)
        pages = self._pages_at(segments)
        page, values = pages.get(request.method, (None, {}))
        rules = self._limits.origins
        if page is None or page.access is not Access.ANYBODY:
            # Probes name whatever they like, and learn nothing.
            rules.check_host(request.headers)
        rules.check_site(request.method, request.headers)
        if page is not None:
            answer = await self._shown(request, entry, page, values)
            if request.method == "OPTIONS":
                # Balancers ask this way whether to send clients here (HAProxy's `option httpchk`): the status counts.
                answer = PageAnswer(b"", answer.status, headers=(("Allow", ", ".join(sorted(pages))),))
            headers = [*answer.headers, ("Content-Type", answer.content_type)]
            body = answer.body if answer.status != 204 else None
            return self._finished(web.Response(status=answer.status, body=body, headers=CIMultiDict(headers)))
        if pages:
            raise _wrong_method(pages)
        try:
            destination = self._routes.find(request.method, segments)
        except BadPath as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        if destination is None or self._reverse_proxy is None:
            reason = "no such page, and no path that is forwarded to brokers (brokerWebServiceURL)"
            raise HttpRefused(404, reason, "no_route")
        return await self._pass_on(self._reverse_proxy, request, entry, destination)

    def _checked(self, request: web.BaseRequest) -> list[str]:
        """Return the segments of the path; raises HttpRefused for a malformed or ambiguous request."""
        if request.raw_headers is TOO_LARGE:
            raise HttpRefused(431, HEADER_REFUSAL, "header", close=True)
        if request.method not in _METHODS:
            raise self._unserved_method(request)
        headers = request.headers
        if "Transfer-Encoding" in headers and "Content-Length" in headers:
            raise HttpRefused(400, "got both transfer-encoding and content-length", "bad_request", close=True)
        coding = headers.getall("Transfer-Encoding", [])
        if coding and request.version < (1, 1):
            raise HttpRefused(400, "got a transfer-encoding in http/1.0", "bad_request", close=True)
        if coding and [value.strip().lower() for value in coding] != ["chunked"]:
            raise HttpRefused(501, "expected transfer-encoding chunked and no other", "bad_request", close=True)
        if len(headers.getall("Host", [])) != 1 and request.version >= (1, 1):
            raise HttpRefused(400, "expected one host header", "bad_request", close=True)
        expectation = headers.get("Expect")
        if expectation is not None and expectation.lower() != "100-continue":
            raise HttpRefused(417, "expected 100-continue or no expectation", "bad_request", close=True)
        path, _, query = request.raw_path.partition("?")
        if request.method == "OPTIONS" and path == "*":
            # A question about the server as a whole: RFC 9110, 9.3.7.
            path = SERVER_PAGE
        if not query.isascii() or not query.isprintable() or " " in query or "#" in query:
            raise HttpRefused(400, "expected a query of printable ascii", "bad_request")
        try:
            return checked_segments(path)
        except BadPath as error:
            raise HttpRefused(400, str(error), "bad_request") from error

    def _pages_at(self, segments: list[str]) -> Mapping[str, tuple[Page, dict[str, str]]]:
        return {} if self._routes.hides(segments) else self.pages.at(segments)

    def _unserved_method(self, request: web.BaseRequest) -> HttpRefused:
        try:
            pages = self._pages_at(checked_segments(request.raw_path.partition("?")[0]))
        except BadPath:
            return _wrong_method(_METHODS, close=True)
        return _wrong_method(pages or _METHODS, close=True)

    async def _shown(
        self, request: web.BaseRequest, entry: AccessEntry, page: Page, values: dict[str, str]
    ) -> PageAnswer:
        """Return the answer of a page to a client that may see it."""
        entry.routine = page.access in (Access.ANYBODY, Access.METRICS)
        open_to_all = page.access is Access.ANYBODY or (page.access is Access.METRICS and not self._guard_metrics)
        if not open_to_all:
            await self._authenticate(request, entry, token_in_query=True)
        if request.method == "OPTIONS" and page.method != "GET":
            return PageAnswer(b"")
        gzip = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        try:
            async with asyncio.timeout(self._limits.metrics_seconds):
                is_local = partial(asks_on_loopback, request, entry.client.accepted_from)
                return await page.serve(PageRequest(entry.client, values, gzip, _query(request), is_local))
        except TimeoutError as error:
            raise HttpRefused(503, "this page takes too long (metricsServletTimeoutMs)", "timeout") from error

    async def _authenticate(self, request: web.BaseRequest, entry: AccessEntry, *, token_in_query: bool) -> None:
        """Set the client's role, if authentication is enabled; raises HttpRefused.

        `token_in_query`: browsers cannot set headers of a WebSocket, and write the token into the query.
        """
        if self._guard is None:
            return
        authorization = request.headers.getall("Authorization", [])
        if len(authorization) > 1:
            raise HttpRefused(400, "expected one authorization header", "bad_request", close=True)
        header = authorization[0] if authorization else None
        if header is None and token_in_query and "token" in request.query:
            token = request.query["token"]
            if token != token.strip():
                # The query is passed on as it is.
                raise HttpRefused(400, "expected a token without white space around it in the query", "bad_request")
            header = f"Bearer {token}"
        entry.client = await self._guard.identified(entry.client, header, certificate_of(request))

    async def _pass_on(
        self, reverse_proxy: "ReverseProxy", request: web.BaseRequest, entry: AccessEntry, destination: Destination
    ) -> web.StreamResponse:
        with _Watched(self._hangup, request), self._with_place(request) as admitted:
            # Authenticate before the gate: unknown clients must not take its places from known clients.
            await self._authenticate(request, entry, token_in_query=not destination.to_third_party)
            is_socket = self._tunnels is not None and self._tunnels.asked_for(request)
            slashed = destination.with_slash(request.raw_path)
            if slashed is not None and request.method in ("GET", "HEAD") and not is_socket:
                count_answer(self._counters, 302)
                return self._finished(web.Response(status=302, headers={"Location": slashed}))
            # `_Watched` cancels this request when its client leaves, so it leaves the gate's queue as well.
            visit = Visit(entry.client.turn_key, request.content)
            with await self._gate.enter(visit) as place:
                admitted()
                async with visit.endable():
                    if self._tunnels is not None and is_socket:
                        return await self._tunnels.serve(request, entry.client, destination, place.release)
                    return await reverse_proxy.serve(request, entry.client, destination, visit)

    @contextmanager
    def _with_place(self, request: web.BaseRequest) -> Iterator[Callable[[], None]]:
        """Hold a place of the connections for a request; gives what to call when the request is admitted."""
        connection = request.protocol
        server = connection._manager
        if not isinstance(server, HttpServer) or not isinstance(connection, HttpConnection):
            # aiohttp forgets the server of a connection that is lost.
            raise ConnectionError("the client has left")
        if server.places.full:
            self._counters.disconnected(DisconnectCause.CONNECTION_LIMIT)
        if not server.take_place(connection):
            detail = f"{server.places.limit} connections have a request in progress (maxHttpServerConnections)"
            raise HttpRefused(503, _BUSY, "connections", retry_after(1), close=True, detail=detail)
        try:
            yield partial(server.places.admitted, connection)
        finally:
            server.asks(connection)

    def _refusal(self, request: web.BaseRequest, entry: AccessEntry, refused: HttpRefused) -> web.StreamResponse:
        self._counters[REFUSED][refused.kind] += 1
        count_answer(self._counters, refused.status)
        entry.reason = refused.detail
        response = web.Response(status=refused.status, body=refused.body, content_type=JSON)
        for name, value in refused.headers:
            response.headers.add(name, value)
        if refused.close or request.body_exists:
            # The next request stands after the rest of a refused body, which would have to be read to its end.
            response.force_close()
        return self._finished(response)

    def _finished(self, response: web.Response) -> web.Response:
        finish(response.headers, self._extra_headers)
        return response


class _Watched:
    """Aborts the connection when its client hangs up while nothing is read, as in an upload that a broker stalls."""

    def __init__(self, hangup: HangupWatcher, request: web.BaseRequest) -> None:
        self._hangup = hangup
        self._transport = request.transport
        own = self._transport.get_extra_info("socket") if self._transport is not None else None
        self._fd = own.fileno() if own is not None else -1

    def __enter__(self) -> None:
        if self._fd >= 0:
            self._hangup.watch(self._fd, self._gone)

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            self._hangup.unwatch(self._fd, self._gone)

    def _gone(self, _: bool) -> None:
        self._fd = -1
        if self._transport is not None:
            self._transport.abort()


def _wrong_method(allowed: Iterable[str], *, close: bool = False) -> HttpRefused:
    """Return the error for a method that a path does not have."""
    text = ", ".join(sorted(allowed))
    return HttpRefused(405, f"expected one of the methods {text}", "method", (("Allow", text),), close=close)


def _query(request: web.BaseRequest) -> Mapping[str, str]:
    return request.query if request.query_string else {}
