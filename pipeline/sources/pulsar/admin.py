"""Questions to a cluster's admin interface: they change nothing, have a timeout each, and are asked again in patience.

Rule: an answer that another try will not change is an error at once; a cluster that is away, or busy, has
`PATIENCE_SECONDS` in all. Credentials go where the admin URL says, and along redirects between brokers (that is how
Pulsar finds the owner of a topic), but never from https to http.
"""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.parse import quote

from pipeline.sources.pulsar.credentials import header_source, tls_context
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import PulsarSettings

__all__ = ["PATIENCE_SECONDS", "Admin", "NotFoundError", "topic_path"]

PATIENCE_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = 15.0
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 5.0
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})
# More is no statistics of a topic: 100,000 ledgers have some 10 MB.
_LONGEST_ANSWER_BYTES: Final = 64 << 20


class NotFoundError(Exception):
    """What was asked about does not exist."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise urllib.error.HTTPError(req.full_url, code, "redirect from https to http refused", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class Admin:
    """Ask the admin interface of the settings."""

    def __init__(
        self,
        settings: PulsarSettings,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = settings.admin_url
        self._headers = header_source(settings)
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if self._url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=tls_context(settings)))
        self._opener = urllib.request.build_opener(*handlers)
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._sleep = sleep

    def get(self, path: str) -> Any:
        """Give the decoded answer; raises NotFoundError, TopicError."""
        text = self._ask(path, lambda answer: answer.read(_LONGEST_ANSWER_BYTES), self._patience_seconds)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise TopicError(f"{self._url}{path}: got no JSON: is --admin-url the admin interface?") from None

    def headers(self, path: str) -> Message:
        """Give the headers of an answer, its body not read, at the first try; raises NotFoundError, TopicError."""
        got: Message = self._ask(path, lambda answer: answer.headers, 0.0)
        return got

    def _ask(self, path: str, take: Callable[[Any], Any], patience_seconds: float) -> Any:
        until = self._clock() + patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            request = urllib.request.Request(f"{self._url}{path}", headers=self._headers())
            try:
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                    return take(answer)
            except urllib.error.HTTPError as error:
                with error:
                    why = self._why_again(path, error)
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                if isinstance(reason, ssl.SSLCertVerificationError):
                    raise TopicError(f"{self._url}: {_one_line(str(reason))} (--tls-trust)") from None
                why = str(reason) or type(reason).__name__
            if self._clock() + pause > until:
                tried = f"tried for {patience_seconds:g} s"
                raise TopicError(f"{self._url} does not answer: {_one_line(why)} ({tried}; --admin-url)")
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _why_again(self, path: str, error: urllib.error.HTTPError) -> str:
        reason = _one_line(error.read(1000).decode(errors="replace")) or str(error.reason)
        if error.code == 404:
            raise NotFoundError(reason)
        if error.code in (401, 403):
            raise TopicError(
                f"{self._url}{path} refuses ({error.code}): log in with --auth as a role that may ask for the topic's"
                " statistics; without --admin-url nobody is asked, but then lost events go unnoticed"
            )
        if error.code not in _LATER:
            raise TopicError(f"{self._url}{path}: got status {error.code}, expected 200: {reason}")
        return f"{error.code} {reason}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def topic_path(topic: str) -> str:
    """Give the path of a topic in the admin interface."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return f"/admin/v2/{domain}/{quote(tenant, safe='')}/{quote(namespace, safe='')}/{quote(name, safe='')}"
