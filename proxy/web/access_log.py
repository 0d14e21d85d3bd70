"""One log line for each request of the web ports: who asked for what, and what came of it.

Rules: a query is never written, for clients put tokens there; probes and scrapes are told at debug only; beyond
`LINES_A_SECOND` requests get no line but are counted, so that a storm is not made worse by its own log.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from limiter.clock import Clock
from proxy.auth.fairness_key import DisplayNames
from proxy.core.log import Logger
from proxy.web.http.clients import WebClient

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest, StreamResponse

LINES_A_SECOND: Final = 100
EVENT: Final = "http request"


@dataclass(slots=True)
class AccessEntry:
    """What is known of one request so far; `routine`: a probe or a scrape, `reason`: why it was refused."""

    client: WebClient
    began: float
    routine: bool = False
    reason: str | None = None


class AccessLog:
    """Write the lines; `names` writes roles as operators want to see them."""

    def __init__(self, log: Logger, clock: Clock, names: DisplayNames) -> None:
        self._log = log
        self._clock = clock
        self._names = names
        self._paces = {True: _Pace(), False: _Pace()}

    def begin(self, client: WebClient) -> AccessEntry:
        """Begin the account of a request."""
        return AccessEntry(client, self._clock.time())

    def end(self, told: AccessEntry, request: "BaseRequest", response: "StreamResponse | None") -> None:
        """Write its line, if one is due; no response: its client has gone before it was answered."""
        now = self._clock.time()
        pace = self._paces[told.routine]
        if not pace.due(now):
            return
        fields: dict[str, Any] = {
            "client": told.client.name,
            "method": request.method,
            "path": request.raw_path.partition("?")[0],
            "seconds": round(now - told.began, 3),
        }
        if response is not None:
            fields |= {"status": response.status, "bytes": _size(request, response)}
        reason = told.reason if response is not None else "the client has gone"
        if reason is not None:
            fields["reason"] = reason
        if told.client.role is not None:
            fields["principal"] = self._names(told.client.principal)
        left_out = pace.take_left_out()
        if left_out:
            fields["requests_since_last_line"] = left_out
        write = self._log.debug if told.routine else self._log.info
        write(EVENT, **fields)


class _Pace:
    """So many lines in each second."""

    __slots__ = ("_left_out", "_second", "_written")

    def __init__(self) -> None:
        self._second = -1
        self._written = 0
        self._left_out = 0

    def due(self, now: float) -> bool:
        if int(now) != self._second:
            self._second, self._written = int(now), 0
        if self._written >= LINES_A_SECOND:
            self._left_out += 1
            return False
        self._written += 1
        return True

    def take_left_out(self) -> int:
        left_out, self._left_out = self._left_out, 0
        return left_out


def _size(request: "BaseRequest", response: "StreamResponse") -> int:
    """Give the size of the answer: what was streamed, its head included, else the body that is to be written."""
    body = getattr(response, "body", None)
    if isinstance(body, bytes | bytearray):
        return len(body)
    return response.body_length or request.writer.output_size
