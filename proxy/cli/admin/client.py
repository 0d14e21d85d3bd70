"""A client of the admin API: over the control socket, or at `adminApiAddress` with the token.

Rules: if no proxy answers, the error says what was tried and which key to check. An answer is read up to a bound: who
listens at the address may be no proxy.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from proxy.web.admin.control_socket import connected

PATIENCE_SECONDS: Final = 5.0
LONG_PATIENCE_SECONDS: Final = 30.0
_KEY: Final = "controlSocketPath"
_ADDRESS_KEY: Final = "adminApiAddress"
_LARGEST_PAGE: Final = 1000
# The largest of a proxy is a page of a thousand connections, or a profile: some MB.
LARGEST_ANSWER_BYTES: Final = 16 * 1024 * 1024


class NoAnswer(Exception):
    """No proxy answers; the text says what was tried and which key to check."""


class Refused(Exception):
    """A proxy refuses a request; `status` and `document` are those of its answer."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        super().__init__(str(document.get("reason") or f"status {status}"))
        self.status = status
        self.document = document


class _ByPath(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._seconds = timeout

    def connect(self) -> None:
        self.sock = connected(self._path, self._seconds)


class AdminClient:
    """Asks the first of some control sockets on which a proxy listens, or an address with a token."""

    def __init__(self, paths: Sequence[Path] = (), address: str = "", token: str = "") -> None:
        self._paths = paths
        self._address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, seconds: float = PATIENCE_SECONDS
    ) -> Mapping[str, Any]:
        """Send a request and return the document of the answer.

        Raises NoAnswer, or Refused for a status of 400 and above. `seconds` bounds each wait, not the whole request.
        """
        problems = []
        for place in [self._address] if self._address else self._paths:
            try:
                status, document = self._exchange(place, method, path, body, seconds)
            except (OSError, HTTPException, ValueError) as error:
                problems.append(f"{place} ({_reason(error)})")
                continue
            if status >= 400:
                raise Refused(status, document)
            return document
        tried = ", ".join(problems) if problems else "nothing, because the configuration turns the socket off"
        elsewhere = f"check its {_ADDRESS_KEY}" if self._address else f"check {_KEY}, or give --socket"
        raise NoAnswer(f"no proxy answers; tried: {tried}; {elsewhere}")

    def top(self, seconds: float = PATIENCE_SECONDS) -> Mapping[str, Any]:
        """Return the document of `pulsar-proxy top`; raises NoAnswer."""
        try:
            return self.ask("GET", "/v1/top", seconds=seconds)
        except Refused as error:
            raise NoAnswer(f"the proxy refuses: {error}") from error

    def pages(self, path: str, name: str, query: Mapping[str, Any], limit: int | None) -> Iterator[Mapping[str, Any]]:
        """Yield the rows in the field `name` of each page, at most `limit` (None: all rows); raises as `ask`."""
        after, left = 0, limit
        while left is None or left > 0:
            size = _LARGEST_PAGE if left is None else min(left, _LARGEST_PAGE)
            document = self.ask("GET", f"{path}?{urlencode({**query, 'limit': size, 'after': after})}")
            yield from document[name]
            if document["next"] is None:
                return
            after = document["next"]
            left = None if left is None else left - len(document[name])

    def _exchange(
        self, place: Path | str, method: str, path: str, body: Mapping[str, Any] | None, seconds: float
    ) -> tuple[int, Mapping[str, Any]]:
        host = HTTPConnection(place, timeout=seconds) if isinstance(place, str) else _ByPath(place, seconds)
        sent = None if body is None else json.dumps(body).encode()
        try:
            # A proxy without a free slot answers and closes at once, so that the rest of the request may fail.
            with suppress(BrokenPipeError):
                host.request(method, path, sent, self._headers)
            answer = host.getresponse()
            found = answer.read(LARGEST_ANSWER_BYTES + 1)
        finally:
            host.close()
        if len(found) > LARGEST_ANSWER_BYTES:
            raise ValueError(f"got an answer of more than {LARGEST_ANSWER_BYTES} bytes")
        try:
            document = json.loads(found)
        except RecursionError:
            document = None
        if not isinstance(document, dict):
            raise ValueError("expected an answer with a JSON object")
        return answer.status, document


def ask_top(paths: Sequence[Path], seconds: float = PATIENCE_SECONDS) -> Mapping[str, Any]:
    """Return the document of `pulsar-proxy top` from the first of `paths` where a proxy listens; raises NoAnswer."""
    return AdminClient(paths).top(seconds)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if isinstance(error, json.JSONDecodeError | HTTPException):
        return "no valid answer: the proxy is stopping, or has another version"
    return str(error)
