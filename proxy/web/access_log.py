"""The access log of the web ports: a line for each request, with its client, path, status and size.

Rules: the query of a URL is never logged, because clients put tokens there. Probes and scrapes are logged at debug
level only. Requests beyond `LINES_A_SECOND` get no line but are counted, so that logging never worsens a storm.
Requests that nobody served (404, 400, 401 and the like) cost their sender nothing: they get fewer lines, and no line
has more than the beginning of a path, so that nobody fills a disk with them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from limiter.clock import Clock
from proxy.auth.fairness_key import DisplayNames
from proxy.core.log import LineRate, Logger
from proxy.web.http.clients import WebClient

if TYPE_CHECKING:
    from aiohttp.web import BaseRequest, StreamResponse

LINES_A_SECOND: Final = 100
UNSERVED_LINES_A_SECOND: Final = 10
# The log itself cuts a value at several thousand characters only.
LONGEST_PATH: Final = 256
LONGEST_METHOD: Final = 32
# A client made the request in vain: a mistake of its own, or it left before the answer.
_IN_VAIN: Final = range(400, 500)
EVENT: Final = "http request"


@dataclass(slots=True)
class AccessEntry:
    """The log line of a request in progress; `routine`: a probe or a scrape, `reason`: the reason of a refusal."""

    client: WebClient
    began: float
    routine: bool = False
    reason: str | None = None


class AccessLog:
    """Write the lines; `names` anonymizes principals as configured."""

    def __init__(self, log: Logger, clock: Clock, names: DisplayNames) -> None:
        self._log = log
        self._clock = clock
        self._names = names
        self._routine, self._served = LineRate(LINES_A_SECOND), LineRate(LINES_A_SECOND)
        self._unserved = LineRate(UNSERVED_LINES_A_SECOND)

    def begin(self, client: WebClient) -> AccessEntry:
        return AccessEntry(client, self._clock.time())

    def end(self, entry: AccessEntry, request: "BaseRequest", response: "StreamResponse | None") -> None:
        """Write the line of a finished request, unless the line rate is used up.

        `response` is None if the client left before it was answered.
        """
        now = self._clock.time()
        pace = self._pace(entry, response)
        if not pace.due(now):
            return
        fields: dict[str, Any] = {
            "client": entry.client.name,
            "method": request.method[:LONGEST_METHOD],
            "path": _path(request.raw_path),
            "seconds": round(now - entry.began, 3),
        }
        if response is not None:
            fields |= {"status": response.status, "bytes": _size(request, response)}
        reason = entry.reason if response is not None else "the client has gone"
        if reason is not None:
            fields["reason"] = reason
        if entry.client.role is not None:
            fields["principal"] = self._names(entry.client.principal)
        left_out = pace.take_left_out()
        if left_out:
            fields["requests_since_last_line"] = left_out
        write = self._log.debug if entry.routine else self._log.info
        write(EVENT, **fields)

    def _pace(self, entry: AccessEntry, response: "StreamResponse | None") -> LineRate:
        if entry.routine:
            return self._routine
        return self._unserved if response is None or response.status in _IN_VAIN else self._served


def _path(raw_path: str) -> str:
    """Return the beginning of a request's path, without the query."""
    path = raw_path.partition("?")[0]
    return path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}... ({len(path)} in all)"


def _size(request: "BaseRequest", response: "StreamResponse") -> int:
    """Return the size of a response: of its body, or if that was streamed, of everything written with the head."""
    body = getattr(response, "body", None)
    if isinstance(body, bytes | bytearray):
        return len(body)
    return response.body_length or request.writer.output_size
