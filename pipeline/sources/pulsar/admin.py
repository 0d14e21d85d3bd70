"""Questions to a cluster's admin interface: they change nothing, and are asked again in patience.

Rule: an answer that another try will not change is an error at once; a cluster that is away, or busy, has
`PATIENCE_SECONDS` in all. Credentials go where the admin URL says, and along redirects between brokers (that is how
Pulsar finds the owner of a topic), but never from https to http.
"""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.message import Message
from functools import cached_property
from json import JSONDecodeError
from typing import Any, Final, TypeVar
from urllib.parse import quote

from eventlog.topic_admin import AdminError, RedirectError, TopicAdmin
from pipeline.sources.pulsar.credentials import header_source, tls_context
from pipeline.sources.pulsar.errors import TopicError
from pipeline.sources.pulsar.options import PulsarSettings

PATIENCE_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = 15.0
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 5.0
# Status 0: the interface could not be asked.
_LATER: Final = frozenset({0, 408, 429, 500, 502, 503, 504})
# More is no statistics of a topic: 100,000 ledgers have some 10 MB.
_LONGEST_ANSWER_BYTES: Final = 64 << 20

_Answer = TypeVar("_Answer")


class NotFoundError(Exception):
    """The topic, or the part of it, that was asked about does not exist."""


def topic_admin(settings: PulsarSettings) -> TopicAdmin:
    """Return the admin interface of the settings; raises TopicError."""
    tls = tls_context(settings) if settings.admin_url.startswith("https:") else None
    return TopicAdmin((settings.admin_url,), header_source(settings), tls)


@dataclass(frozen=True)
class Admin:
    """Ask the admin interface of the settings."""

    settings: PulsarSettings
    patience_seconds: float = PATIENCE_SECONDS
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def _admin(self) -> TopicAdmin:
        admin = topic_admin(self.settings)
        return replace(admin, timeout_seconds=_TIMEOUT_SECONDS, largest_answer_bytes=_LONGEST_ANSWER_BYTES)

    def get(self, path: str) -> Any:
        """Return the decoded answer; raises NotFoundError, TopicError."""
        return self._ask(path, self._admin.get, self.patience_seconds)

    def headers(self, path: str) -> Message:
        """Return the headers of an answer, its body not read, at the first try; raises NotFoundError, TopicError."""
        return self._ask(path, self._admin.answer_headers, 0.0)

    def _ask(self, path: str, ask: Callable[[str], _Answer], patience_seconds: float) -> _Answer:
        until = self.clock() + patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return ask(path)
            except AdminError as error:
                why = self._why_again(path, error)
            if self.clock() + pause > until:
                tried = f"tried for {patience_seconds:g} s"
                raise TopicError(f"{self.settings.admin_url} does not answer: {why} ({tried}; --admin-url)")
            self.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _why_again(self, path: str, error: AdminError) -> str:
        """Return why another try may help; raises NotFoundError, TopicError if none will."""
        url = self.settings.admin_url
        reason = _one_line(str(error.reason) or type(error.reason).__name__)
        if error.status == 404:
            raise NotFoundError(reason)
        if error.status in (401, 403):
            raise TopicError(
                f"{url}{path} refuses ({error.status}): log in with --auth as a role that may ask for the topic's"
                " statistics; without --admin-url nobody is asked, but then lost events go unnoticed"
            )
        if isinstance(error, RedirectError):
            raise TopicError(_one_line(str(error)))
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise TopicError(f"{url}: {reason} (--tls-trust)")
        if isinstance(error.reason, JSONDecodeError):
            raise TopicError(f"{url}{path}: got no JSON: is --admin-url the admin interface?")
        if error.status not in _LATER:
            raise TopicError(f"{url}{path}: got status {error.status}, expected 200: {reason}")
        return f"{error.status} {reason}" if error.status else reason


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def topic_path(topic: str) -> str:
    """Return the path of a topic in the admin interface."""
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return f"/admin/v2/{domain}/{quote(tenant, safe='')}/{quote(namespace, safe='')}/{quote(name, safe='')}"
