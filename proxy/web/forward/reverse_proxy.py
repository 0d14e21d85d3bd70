"""Forward requests to brokers and function workers, and stream their answers back within bounds; follow redirects.

Rules: no body is ever in memory as a whole. A broker is asked only while the client is connected. A request that may
have reached a broker is sent again only if its method is idempotent and its body is still available. A failure before
the answer begins is a JSON error with the key to change; a later failure cuts the client's connection.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from proxy.brokers.side import BrokerSide
from proxy.config.core import Core
from proxy.config.sources import ReverseProxyRoute
from proxy.core.errors import OWN_FAULTS, DisconnectCause
from proxy.core.log import LinePace
from proxy.requests.topic_lists.memory import ListMemory
from proxy.telemetry.events.reports import Reports
from proxy.web.forward.answer_writer import AnswerWriter, BrokerClock
from proxy.web.forward.bodies import STEP_SECONDS, BodyPayload, NotReplayable, RequestBody
from proxy.web.forward.broker_client import (
    NoConnectionFree,
    ServerConnections,
    fault_of,
    header_fault,
    hosts_of,
    open_client,
    read_at_most,
)
from proxy.web.forward.broker_ports import BrokerPorts
from proxy.web.forward.headers import (
    CLAIMED_HOSTS,
    Headers,
    RequestLoop,
    UnsafeHeader,
    extra_headers,
    finish,
    to_broker,
    to_client,
    without,
    without_credentials,
)
from proxy.web.forward.lookup_answers import LARGEST_ANSWER_BYTES
from proxy.web.forward.own_credentials import (
    AUTHORIZATION,
    UNSHOWN,
    check_rights,
    identity_headers,
    judged_by_header,
)
from proxy.web.forward.places import Place
from proxy.web.forward.redirects import RedirectRules, follows, same_origin
from proxy.web.forward.replay_copies import ReplayCopies, ReplayCopy
from proxy.web.forward.routes import Care, Destination, Group
from proxy.web.forward.settings import WebLimits, WebTargets
from proxy.web.forward.topic_list_permits import ListUnderWay, TopicListPermits
from proxy.web.forward.uploads import Upload
from proxy.web.forward.upstreams import REDIRECTS, SERVER_FAILURES, Upstreams
from proxy.web.forward.visits import Visit
from proxy.web.http.clients import WebClient
from proxy.web.http.errors import HttpRefused, count_answer, retry_after

# The proxy reads the answer, so the answer must not be compressed. A broker that redirects to the host that a client
# claims would make that host, and whatever it names, known brokers; here the proxy itself follows, and writes its name.
_NOT_IN_LOOKUPS: Final = ("Accept-Encoding", *CLAIMED_HOSTS)
_NOT_REACHED: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
# Clients need not know the addresses inside; the log names the server.
_NONE_FREE: Final = "all connections to the server of this request are in use, send it again later"
_NO_SOCKET: Final = "the proxy has no socket free for this request, send it again later"
_NO_BODY: Final = frozenset({204, 304})
_KEYS: Final = {Group.BROKERS: "brokerWebServiceURL", Group.FUNCTION_WORKERS: "functionWorkerWebServiceURL"}


@dataclass(slots=True)
class _Exchange:
    """A request that is being forwarded; `identity_headers` are headers for brokers and function workers only.

    `trusted`: the server that is asked now may get these headers.
    """

    request: web.BaseRequest
    client: WebClient
    visit: Visit
    destination: Destination
    method: str
    headers: Headers
    identity_headers: Headers
    body: RequestBody | None
    size: int | None
    under_way: ListUnderWay | None = None
    # The clock of a topic list: from its first byte on only waits for the broker count.
    clock: BrokerClock | None = None
    trusted: bool = False
    # The place among the connections to the server that is asked.
    connection: Place | None = None

    def leave_server(self) -> None:
        """Release the place among the server's connections; a second call does nothing."""
        if self.connection is not None:
            self.connection.release()
            self.connection = None

    def question_over(self) -> None:
        """Release what was held for asking the server; a second call does nothing."""
        self.leave_server()
        if self.under_way is not None:
            self.under_way.question_over()

    @property
    def names_role(self) -> bool:
        """Return whether the server that is asked now is told the role of the client, and heeds it."""
        return self.trusted and bool(self.identity_headers) and self.destination.heeds_roles

    @property
    def has_own_credentials(self) -> bool:
        """Return whether the identity headers have credentials of the proxy."""
        return _has_credentials_in(self.identity_headers)

    def ended(self, outcome: str, sent_bytes: int = 0) -> None:
        """Record the outcome of a topic list, in the words of the event schema; other requests are not recorded."""
        if self.under_way is not None:
            self.under_way.outcome = outcome
            self.under_way.sent_bytes = sent_bytes


class ReverseProxy:
    """Answers requests from the servers that their routes lead to."""

    def __init__(
        self, core: Core, memory: ListMemory, side: BrokerSide, reports: Reports, lookups: BrokerPorts
    ) -> None:
        config, loop = core.config, core.loop
        limits, targets = WebLimits.of(config), WebTargets.of(config)
        self.limits = limits
        self._loop, self._counters, self._loop_budget = loop, core.counters, core.loop_budget
        self._log = core.log.of("web")
        self._memory = memory
        self.side = side
        # The ports that lookups over HTTP lead to.
        self._lookups = lookups
        self._extra_headers = extra_headers(config.proxy_http_response_headers_json)
        self._client = open_client(
            limits, hosts_of(targets.urls), side.web_validator, core.config.broker_dns_ttl_seconds, core.loop_budget
        )
        self._rules = RedirectRules(
            (*targets.brokers, *targets.function_workers), side.web_validator, targets.third_parties,
            to_any_target=config.broker_proxy_credentials_to_any_target,
        )  # fmt: skip
        self._list_permits = TopicListPermits(core, memory, reports, limits.most_asked_lists)
        self._copies = ReplayCopies(memory.limiter.direct, core.counters, loop.call_soon)
        self._connections = ServerConnections(loop, lambda: memory.writes.limits, self._log)
        self._pace = LinePace()
        self._via = secrets.token_hex(8)
        own = side.own
        self._shows_certificate = targets.shows_certificate or (own is not None and own.tls_files() is not None)
        self._brokers = Upstreams(targets.brokers, loop)
        self._workers = Upstreams(targets.function_workers, loop) if targets.function_workers else None
        self._extra = {route: Upstreams((route.proxy_to,), loop) for route in targets.extra}

    def apply(self, limits: WebLimits) -> None:
        """Apply changed limits to new requests; requests in progress keep theirs."""
        self.limits = limits
        self._list_permits.apply(limits.most_asked_lists)

    def web_opened(self, port: int | None, tls_port: int | None) -> None:
        """Called when the web ports are open, which the answers to lookups name."""
        self._lookups.web_opened(port, tls_port)

    async def close(self) -> None:
        """Close the connections to servers."""
        await self._client.close()

    def servers(self, destination: Destination) -> tuple[Upstreams, str]:
        """Return the servers of a destination and their configuration key; raises HttpRefused without servers."""
        group = destination.servers
        if isinstance(group, ReverseProxyRoute):
            return self._extra[group], f"httpReverseProxy.{group.name}.proxyTo"
        if group is Group.FUNCTION_WORKERS and self._workers is not None:
            return self._workers, _KEYS[group]
        if not len(self._brokers):
            raise HttpRefused(404, "the admin interface is not served here (brokerWebServiceURL)", "no_route")
        return self._brokers, _KEYS[Group.BROKERS]

    async def serve(
        self, request: web.BaseRequest, client: WebClient, destination: Destination, visit: Visit
    ) -> web.StreamResponse:
        """Answer a request; raises HttpRefused before the answer has begun."""
        self.servers(destination)
        limits = self.limits
        copy = self._copies.new(limits.replay_bytes, self._memory.fairness_keys.key(client, None))
        has_body = request.body_exists
        exchange = _Exchange(
            request, client, visit, destination, request.method,
            *await self._request_headers(request, client, destination),
            self._body(request, copy, visit) if has_body else None, request.content_length if has_body else None,
        )  # fmt: skip
        try:
            async with AsyncExitStack() as stack:
                if destination.care is Care.TOPIC_LIST and destination.namespace is not None:
                    admission = self._list_permits.admitted(client, destination.namespace, limits.window_bytes)
                    exchange.under_way = await stack.enter_async_context(admission)
                return await self._within_time(exchange)
        finally:
            # Release the copy before any await: a client that leaves cancels this handler while it waits in `stop`.
            copy.give_up()
            if exchange.body is not None:
                await exchange.body.stop()

    def _body(self, request: web.BaseRequest, copy: ReplayCopy, visit: Visit) -> RequestBody:
        visit.upload = Upload(lambda: self._memory.writes.limits)
        turn = self._turn_of(visit)
        return RequestBody(request, copy, self._counters, visit.upload, self.limits.buffer_bytes, turn)

    def _turn_of(self, visit: Visit) -> Callable[[], Awaitable[None]]:
        return partial(self._loop_budget.client_turn, visit.key, STEP_SECONDS)

    async def _request_headers(
        self, request: web.BaseRequest, client: WebClient, destination: Destination
    ) -> tuple[Headers, Headers]:
        try:
            headers = self.forwarded_headers(request, client, destination)
            identity_headers = await self.identity_headers(request, client, destination)
        except UnsafeHeader as error:
            raise HttpRefused(400, str(error), "bad_request") from error
        if destination.care is Care.LOOKUP:
            headers = without(headers, _NOT_IN_LOOKUPS)
        elif not destination.to_third_party and (_has_credentials(request) or _has_credentials_in(identity_headers)):
            # A server may redirect to the host that a client claims; credentials would follow, those in a query, too.
            headers = without(headers, CLAIMED_HOSTS)
        return headers, identity_headers

    def forwarded_headers(self, request: web.BaseRequest, client: WebClient, destination: Destination) -> Headers:
        """Return a request's headers for any server; raises UnsafeHeader, and HttpRefused for a loop."""
        try:
            return to_broker(
                request.headers.items(), client_address=client.accepted_from,
                scheme="https" if request.secure else "http", host=request.headers.get("Host", ""), via=self._via,
                cookies=destination.to_third_party,
            )  # fmt: skip
        except RequestLoop as error:
            raise HttpRefused(508, str(error), "loop") from error

    async def identity_headers(
        self, request: web.BaseRequest, client: WebClient, destination: Destination, *, websocket: bool = False
    ) -> Headers:
        """Return the extra headers for brokers and function workers; none for `httpReverseProxy` routes.

        Raises HttpRefused and UnsafeHeader.
        """
        if destination.to_third_party:
            return []
        own, given = self.side.own, AUTHORIZATION in request.headers
        if not websocket and destination.heeds_roles:
            return await identity_headers(own, client.role, has_authorization=given)
        if not _has_credentials(request):
            await check_rights(own, client.role, certificate=self._shows_certificate)
        return await identity_headers(None, client.role, has_authorization=given)

    async def websocket_headers(self, request: web.BaseRequest, client: WebClient, destination: Destination) -> Headers:
        """Return the headers of the opening of a WebSocket; raises HttpRefused, and UnsafeHeader."""
        headers = self.forwarded_headers(request, client, destination)
        headers += await self.identity_headers(request, client, destination, websocket=True)
        return judged_by_header(headers) if self._shows_certificate and not destination.to_third_party else headers

    async def _within_time(self, exchange: _Exchange) -> web.StreamResponse:
        seconds = self.limits.exchange_seconds
        try:
            async with asyncio.timeout(seconds) as clock:
                if exchange.under_way is not None:
                    exchange.clock = BrokerClock(clock, self._loop, seconds)
                return await self._follow(exchange)
        except TimeoutError as error:
            raise HttpRefused(504, "no answer of the broker in time (httpProxyTimeout)", "timeout") from error

    async def _follow(self, exchange: _Exchange) -> web.StreamResponse:
        url: URL | None = None
        exchange.trusted = may_follow = isinstance(exchange.destination.servers, Group)
        followed = 0
        while True:
            async with self._asked(exchange, url) as answer:
                body = exchange.body
                may_follow = may_follow and (body is None or body.replayable)
                if not (may_follow and follows(answer.status, exchange.method)):
                    return await self._pass_back(exchange, answer)
                url = await self._rules.target(answer.url, answer.headers.get("Location"), followed)
                if not exchange.trusted and not same_origin(url, answer.url):
                    # No broker named this server: it gets no credentials, as with browsers and curl.
                    exchange.headers = without_credentials(exchange.headers)
                exchange.trusted = self._rules.trusted(url, named_by_trusted=exchange.trusted)
                followed += 1
                self._counters[REDIRECTS].value += 1
                if body is not None:
                    # Stop the first upload: two tasks would each get a part of the client's body.
                    await body.stop()
                    body.redirected(answer.status, str(url))

    def unreachable(self, servers: Upstreams, key: str, *, names_role: bool) -> HttpRefused:
        """Return the refusal of a request after each of the servers of `key` was tried in vain."""
        unshown, wait = self._unshown(names_role=names_role), retry_after(servers.seconds_to_wait)
        return HttpRefused(503, f"no server of {key} can be reached{unshown}", "unreachable", wait)

    def _unshown(self, *, names_role: bool) -> str:
        """Return what to add to the reason why a server did not answer: it may have demanded a certificate."""
        return UNSHOWN if self._shows_certificate and not names_role else ""

    # --- asking -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _asked(self, exchange: _Exchange, url: URL | None) -> AsyncIterator[aiohttp.ClientResponse]:
        answer = await (self._ask_one_of(exchange) if url is None else self._ask_other(exchange, url))
        try:
            yield answer
        finally:
            # An answer read to its end has returned its connection already; any other connection must not be reused.
            answer.close()
            exchange.question_over()

    async def _ask_one_of(self, exchange: _Exchange) -> aiohttp.ClientResponse:
        """Ask the server whose turn it is, or the next server if it cannot be reached."""
        servers, key = self.servers(exchange.destination)
        path = exchange.destination.asked_path(exchange.request.raw_path)
        for server in servers.in_turn():
            try:
                answer = await self._ask(exchange, URL(server + path, encoded=True))
            except _NOT_REACHED as error:
                _check_own_fault(error)
                servers.failed(server)
                self._note_failure(server, error)
                continue
            servers.worked(server)
            return answer
        raise self.unreachable(servers, key, names_role=exchange.names_role)

    async def _ask_other(self, exchange: _Exchange, url: URL) -> aiohttp.ClientResponse:
        """Ask the server that another one has redirected to."""
        try:
            return await self._ask(exchange, url)
        except _NOT_REACHED as error:
            _check_own_fault(error)
            self._note_failure(str(url.origin()), error)
            reason = "the server that a broker redirected to cannot be reached"
            raise HttpRefused(503, reason, "unreachable", retry_after(1)) from error

    async def _ask(self, exchange: _Exchange, url: URL) -> aiohttp.ClientResponse:
        headers: CIMultiDict[str] = CIMultiDict(exchange.headers)
        if exchange.trusted:
            headers.extend(exchange.identity_headers)
        elif exchange.has_own_credentials and not self._rules.is_third_party(url):
            self.side.gate.withheld(str(url.origin()), "http")
            raise HttpRefused(502, "the proxy does not know the broker that it was redirected to", "redirect")
        payload = None
        if exchange.body is not None:
            payload = BodyPayload(exchange.body, exchange.size)
            if exchange.size is not None:
                headers["Content-Length"] = str(exchange.size)
        elif exchange.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = "0"
        try:
            return await self._connected(exchange, url, headers, payload)
        except _NOT_REACHED:
            raise
        except NoConnectionFree as error:
            raise HttpRefused(503, _NONE_FREE, "connections", retry_after(1), detail=str(error)) from error
        except (aiohttp.ClientError, NotReplayable, OSError) as error:
            if exchange.body is not None and exchange.body.refusal is not None:
                raise exchange.body.refusal from error
            self._note_failure(str(url.origin()), error)
            unshown = self._unshown(names_role=exchange.names_role)
            reason = header_fault(error) or f"the connection to the broker broke before it answered{unshown}"
            raise HttpRefused(502, reason, "broken") from error

    async def _connected(
        self, exchange: _Exchange, url: URL, headers: CIMultiDict[str], payload: BodyPayload | None
    ) -> aiohttp.ClientResponse:
        """Ask a server when there is a connection; the place among its connections ends with the use of it."""
        exchange.connection = await self._place_for(exchange, url)
        tls = self.side.tls_client
        try:
            if exchange.under_way is not None:
                await exchange.under_way.may_ask()
            if exchange.clock is not None:
                exchange.clock.restart()
            # Use the context in force: certificates may have been replaced. The connections of each are kept apart.
            answer = await self._client.request(
                exchange.method, url, headers=headers, data=payload, allow_redirects=False,
                ssl=tls(exchange.names_role) if tls is not None else True,
            )  # fmt: skip
        except BaseException:
            exchange.question_over()
            raise
        # An upload may outlast the answer, and keeps the connection.
        answer.content.on_eof(lambda: exchange.leave_server() if answer.connection is None else None)
        return answer

    async def _place_for(self, exchange: _Exchange, url: URL) -> Place:
        """Wait for a place among a server's connections. The clock of a topic list stops until it may be asked for."""
        enter = partial(self._connections.enter, url.raw_host or "", url.port, exchange.visit)
        if exchange.clock is not None:
            exchange.clock.stop()
        if exchange.under_way is None:
            return await enter()
        return await exchange.under_way.waits(lambda seconds: enter(list_seconds=seconds))

    def _note_failure(self, server: str, error: BaseException) -> None:
        self._counters[SERVER_FAILURES].value += 1
        if self._pace.due(self._loop.time()):
            detail = str(getattr(error, "os_error", None) or type(error).__name__)
            self._log.warning("web server failed", address=server, detail=detail.lower())

    # --- answering --------------------------------------------------------------------------------

    async def _pass_back(self, exchange: _Exchange, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        fault = fault_of(answer.status, answer.headers.getall("Transfer-Encoding", ()))
        if fault is not None:
            raise HttpRefused(502, fault, "bad_answer")
        try:
            headers = to_client(answer.headers.items(), cookies=exchange.destination.to_third_party)
        except UnsafeHeader as error:
            raise HttpRefused(502, f"the broker's {error}", "bad_answer") from error
        if exchange.destination.care is Care.LOOKUP and answer.status == 200:
            return await self._pass_lookup(exchange, answer, headers)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=CIMultiDict(headers))
        finish(response.headers, self._extra_headers)
        bodiless = exchange.method == "HEAD" or answer.status in _NO_BODY
        if answer.content_length is not None:
            # The answer to a HEAD has a length, too.
            response.content_length = answer.content_length
        elif exchange.request.version >= aiohttp.HttpVersion11 and not bodiless:
            response.enable_chunked_encoding()
        under_way = exchange.under_way
        writer = AnswerWriter(exchange.request, exchange.client.name, self._counters, self._memory.writes, under_way)
        if not bodiless and under_way is not None:
            # From here on the answer fills its window.
            await under_way.answer_begins(fits=writer.has_room_for(answer.content_length))
        count_answer(self._counters, answer.status)
        if not bodiless:
            await self._stream(exchange, response, answer, writer)
        return response

    async def _stream(
        self, exchange: _Exchange, response: web.StreamResponse, answer: aiohttp.ClientResponse, writer: AnswerWriter
    ) -> None:
        exchange.visit.writer = writer
        try:
            await response.prepare(exchange.request)
            step_bytes, turn = self.limits.buffer_bytes, self._turn_of(exchange.visit)
            sent = await writer.write(response, answer.content, step_bytes, exchange.clock, turn)
            await response.write_eof()
        except (aiohttp.ClientError, TimeoutError) as error:
            # ClientError includes an answer that is shorter than its Content-Length.
            if exchange.body is None or exchange.body.refusal is None:
                self._broke_off(answer, error)
            writer.cut()
            exchange.ended("upstream_error")
        except asyncio.CancelledError:
            # The client has left or its time is over: an answer cut in the middle must not look complete.
            writer.cut()
            raise
        except ConnectionError:
            exchange.ended("cancelled")
        else:
            exchange.ended("ok" if answer.status < HTTPStatus.BAD_REQUEST else "upstream_error", sent)

    def _broke_off(self, answer: aiohttp.ClientResponse, error: BaseException) -> None:
        self._counters.disconnected(DisconnectCause.BROKER_CLOSED)
        self._note_failure(str(answer.url.origin()), error)

    async def _pass_lookup(
        self, exchange: _Exchange, answer: aiohttp.ClientResponse, headers: Headers
    ) -> web.StreamResponse:
        try:
            # Read a byte more than allowed, to detect an answer that is too long.
            found = await read_at_most(answer.content, LARGEST_ANSWER_BYTES + 1)
        except aiohttp.ClientError as error:
            raise HttpRefused(502, "the broker's answer broke off", "broken") from error
        if len(found) > LARGEST_ANSWER_BYTES:
            raise HttpRefused(
                502, f"the broker's answer to a lookup is above {LARGEST_ANSWER_BYTES} bytes", "bad_answer"
            )
        written = found
        if exchange.trusted:
            written = self._lookups.rewritten(found, exchange.request.headers.get("Host", ""))
        response = web.Response(status=answer.status, body=written, headers=CIMultiDict(headers))
        finish(response.headers, self._extra_headers)
        count_answer(self._counters, answer.status)
        return response


def _has_credentials(request: web.BaseRequest) -> bool:
    """Return whether a client has sent credentials; browsers cannot set headers of a WebSocket, and use the query."""
    return AUTHORIZATION in request.headers or "token" in request.query


def _has_credentials_in(headers: Headers) -> bool:
    return any(name == AUTHORIZATION for name, _ in headers)


def _check_own_fault(error: BaseException) -> None:
    """Raise HttpRefused if this proxy, and not the server, is why there is no connection."""
    if isinstance(error, OSError) and error.errno in OWN_FAULTS:
        raise HttpRefused(503, _NO_SOCKET, "connections", retry_after(1), detail=str(error)) from error
