"""Client of Pulsar's admin API: checks the retention of a topic, and asks for other modules; it changes nothing.

A topic retains unread messages if its retention is not zero, and the topic itself stays if the policy for inactive
topics does not delete it. Without both, events are gone about a minute after the last producer has left. A policy of
the topic overrides the policy of its namespace, which overrides the broker's configuration.

Rule: every request ends within its timeout. No error text holds credentials.
"""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any, Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

__all__ = ["AdminError", "Keeping", "RedirectError", "TopicAdmin", "TopicName", "topic_name"]

TIMEOUT_SECONDS: Final = 30.0
MOST_REDIRECTS: Final = 5
LARGEST_ANSWER_BYTES: Final = 1024 * 1024
# Brokers accept only these characters in tenants and namespaces. A topic with a slash would have the old four parts,
# and servers of the admin API do not see a name after ? or #.
_TOPIC: Final = re.compile(r"persistent://([-=:.\w]+)/([-=:.\w]+)/([^/?#\s\x00-\x1f\x7f]+)", re.ASCII)

Headers = Callable[[], Mapping[str, str]]


class AdminError(Exception):
    """The admin API refused the request (`status`), or could not be reached (`status` 0).

    `reason` is the API's text, or the exception of the attempt.
    """

    def __init__(self, message: str, status: int = 0, reason: str | Exception = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class RedirectError(AdminError):
    """A redirect leads to a forbidden address, or there are too many redirects."""


class TopicName(NamedTuple):
    """The parts of a persistent topic's name."""

    tenant: str
    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.topic}"

    @property
    def path(self) -> str:
        """Return its path in the admin API."""
        return "/admin/v2/persistent/" + "/".join(map(_quoted, self))


def topic_name(text: str) -> TopicName:
    """Parse `persistent://tenant/namespace/topic`; raise ValueError."""
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}, expected persistent://tenant/namespace/topic")
    return TopicName(*found.groups())


@dataclass(frozen=True, slots=True)
class Keeping:
    """The retention of a topic's messages; None is unknown, and by default a broker deletes them."""

    retention_minutes: int | None = None
    retention_mb: int | None = None
    deletes_inactive: bool | None = None

    @property
    def keeps(self) -> bool:
        """Whether unread messages are retained, and the topic is retained without producers."""
        return bool(self.retention_minutes) and bool(self.retention_mb) and self.deletes_inactive is False

    def problems(self) -> tuple[str, ...]:
        """Return the settings that are wrong, each with the expected value."""
        found = []
        if not self.retention_minutes or not self.retention_mb:
            found.append(f"retention is {_shown(self.retention_minutes, 'min')} and {_shown(self.retention_mb, 'MB')}, "
                         "expected both other than 0 (-1: for ever)")  # fmt: skip
        if self.deletes_inactive is not False:
            now = "true" if self.deletes_inactive else "not set (true by default)"
            found.append(f"deleteWhileInactive is {now}, expected false")
        return tuple(found)


def _shown(value: int | None, unit: str) -> str:
    return "not set" if value is None else f"{value} {unit}"


@dataclass(frozen=True)
class TopicAdmin:
    """The admin API at `urls`, which are tried in order; `headers` returns the credentials for each request.

    Without `tls` certificates are checked against the system's authorities.
    """

    urls: Sequence[str]
    headers: Headers = dict
    tls: ssl.SSLContext | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    largest_answer_bytes: int = LARGEST_ANSWER_BYTES

    def keeping(self, topic: TopicName) -> Keeping:
        """Return the policies in force for an existing topic; raise AdminError."""
        return _keeping(self._policy(topic, "retention"), self._policy(topic, "inactiveTopicPolicies"))

    def get(self, path: str) -> Any:
        """Return the decoded answer; raise AdminError."""
        problem = AdminError("no admin service is configured")
        for url in self.urls:
            if "@" in url:
                raise AdminError("got the url of an admin service with user info (hidden), expected http://host:port")
            try:
                return self._ask(url.rstrip("/") + path)
            except AdminError as error:
                if error.status and error.status < 500:
                    raise
                problem = error
        raise problem

    def _policy(self, topic: TopicName, name: str) -> Any:
        """Return the policy in force for a topic, or the namespace's if topics have no policies."""
        try:
            return self.get(f"{topic.path}/{name}?applied=true")
        except AdminError as error:
            # 405: topicLevelPoliciesEnabled=false. 403: another role may be in charge of policies of topics.
            if error.status not in (403, 404, 405, 412):
                raise
        return self.get(f"{_namespace_path(topic)}/{name}")

    def _ask(self, url: str) -> Any:
        for _ in range(MOST_REDIRECTS):
            answer = self._request(url)
            if not isinstance(answer, _Elsewhere):
                return answer
            url = _next_url(url, answer.location)
        raise RedirectError(f"{_shown_url(url)}: more than {MOST_REDIRECTS} redirects")

    def _request(self, url: str) -> Any:
        headers = {"Accept": "application/json", **self.headers()}
        try:
            request = urllib.request.Request(url, headers=headers)
            with self._opener.open(request, timeout=self.timeout_seconds) as response:
                return self._decoded(response, url)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (301, 302, 307, 308) and error.headers.get("Location"):
                    return _Elsewhere(error.headers["Location"])
                text = error.read(self.largest_answer_bytes)
            said = text.decode(errors="replace") or str(error.reason)
            raise AdminError(f"{_shown_url(url)}: {error.code}{_reason(text)}", error.code, said) from None
        except (OSError, HTTPException, ValueError) as error:
            problem = getattr(error, "reason", None) or error
            shown = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise AdminError(f"{_shown_url(url)}: {shown.lower()}", reason=problem) from None

    def _decoded(self, response: HTTPResponse, url: str) -> Any:
        text = response.read(self.largest_answer_bytes)
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise AdminError(f"{_shown_url(url)}: got an answer that is no json", reason=error) from None

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        # No HTTP proxies of the environment: the rest of the process connects to brokers directly, too.
        handlers = [urllib.request.ProxyHandler({}), _NoRedirect(), urllib.request.HTTPSHandler(context=self.tls)]
        return urllib.request.build_opener(*handlers)


class _Elsewhere(NamedTuple):
    location: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to the caller: urllib would follow them to anywhere, with credentials."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _next_url(url: str, location: str) -> str:
    """Return the target of a redirect; raise RedirectError if credentials would leave TLS."""
    try:
        found = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(found)
    except ValueError:
        raise RedirectError(f"{_shown_url(url)}: a redirect to what is no url") from None
    if "@" in new.netloc:
        raise RedirectError(f"{_shown_url(url)}: a redirect with user info, expected none")
    if new.scheme not in ("http", "https") or (old.scheme == "https" and new.scheme != "https"):
        raise RedirectError(f"{_shown_url(url)}: a redirect to {new.scheme}, expected {old.scheme}")
    return found


def _keeping(retention: Any, inactive: Any) -> Keeping:
    minutes, megabytes, deletes = None, None, None
    if isinstance(retention, dict):
        minutes, megabytes = retention.get("retentionTimeInMinutes"), retention.get("retentionSizeInMB")
    if isinstance(inactive, dict):
        deletes = inactive.get("deleteWhileInactive")
    return Keeping(minutes, megabytes, deletes)


def _reason(text: bytes) -> str:
    try:
        found = json.loads(text)
        reason = str(found["reason"]) if isinstance(found, dict) else ""
    except (ValueError, KeyError):
        reason = ""
    return f": {reason[:200]}" if reason else ""


def _shown_url(url: str) -> str:
    """Return a URL without its query, for error texts; user info was refused before."""
    return url.partition("?")[0]


def _namespace_path(topic: TopicName) -> str:
    return f"/admin/v2/namespaces/{_quoted(topic.tenant)}/{_quoted(topic.namespace)}"


def _quoted(part: str) -> str:
    return quote(part, safe="")
