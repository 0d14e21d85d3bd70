"""The access log of the web ports: a line for each request, with its client, path, status and size.

Rules: the query of a URL is never logged, because clients put tokens there. Probes and scrapes are logged at debug
level only. Requests beyond `LINES_A_SECOND` get no line but are counted, so that logging never worsens a storm.
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
        self._paces = {True: _Pace(), False: _Pace()}

    def begin(self, client: WebClient) -> AccessEntry:
        return AccessEntry(client, self._clock.time())

    def end(self, entry: AccessEntry, request: "BaseRequest", response: "StreamResponse | None") -> None:
        """Write the line of a finished request, unless the line rate is used up.

        `response` is None if the client left before it was answered.
        """
        now = self._clock.time()
        pace = self._paces[entry.routine]
        if not pace.due(now):
            return
        fields: dict[str, Any] = {
            "client": entry.client.name,
            "method": request.method,
            "path": request.raw_path.partition("?")[0],
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


class _Pace:
    """Allow `LINES_A_SECOND` lines in each second, and count the lines left out."""

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
    """Return the size of a response: of its body, or if that was streamed, of everything written with the head."""
    body = getattr(response, "body", None)
    if isinstance(body, bytes | bytearray):
        return len(body)
    return response.body_length or request.writer.output_size
