"""Client of Pulsar's admin API: checks and sets the retention of a topic, and serves requests of other modules.

A topic retains unread messages if its retention is not zero, and the topic itself stays if the policy for inactive
topics does not delete it. Without both, events are gone about a minute after the last producer has left. A policy of
the topic overrides the policy of its namespace, which overrides the broker's configuration.

Rule: every request ends within its timeout; changed policies are read back. No error text holds credentials.
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
from typing import IO, Any, Final, Literal, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

__all__ = ["AdminError", "Keeping", "RedirectError", "TopicAdmin", "TopicName", "topic_name"]

TIMEOUT_SECONDS: Final = 30.0
MOST_REDIRECTS: Final = 5
LARGEST_ANSWER_BYTES: Final = 1024 * 1024
UNLIMITED: Final = -1
# Brokers accept only these characters in tenants and namespaces. A topic with a slash would have the old four parts,
# and servers of the admin API do not see a name after ? or #.
_TOPIC: Final = re.compile(r"persistent://([-=:.\w]+)/([-=:.\w]+)/([^/?#\s\x00-\x1f\x7f]+)", re.ASCII)

Level = Literal["namespace", "topic"]
Headers = Callable[[], Mapping[str, str]]
# Reads an answer, which came from a URL.
Take = Callable[[HTTPResponse, str], Any]


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

    # --- asking -------------------------------------------------------------------------------------

    def keeping(self, topic: TopicName) -> Keeping:
        """Return the policies in force for an existing topic; raise AdminError."""
        return _keeping(self._policy(topic, "retention"), self._policy(topic, "inactiveTopicPolicies"))

    def partitions(self, topic: TopicName) -> int | None:
        """Return the number of partitions, 0 for a topic without, None for no such topic; raise AdminError."""
        try:
            found = self._call("GET", f"{_path(topic)}/partitions")
        except AdminError as error:
            if error.status != 404:
                raise
            found = None  # no topic, or no namespace: the next request shows which
        if isinstance(found, dict) and found.get("partitions"):
            return int(found["partitions"])
        return 0 if str(topic) in self._topics(topic) else None

    def _topics(self, topic: TopicName) -> list[str]:
        found = self._call("GET", f"/admin/v2/persistent/{_quoted(topic.tenant)}/{_quoted(topic.namespace)}")
        return found if isinstance(found, list) else []

    def _policy(self, topic: TopicName, name: str) -> Any:
        """Return the policy in force for a topic, or the namespace's if topics have no policies."""
        try:
            return self._call("GET", f"{_path(topic)}/{name}?applied=true")
        except AdminError as error:
            # 405: topicLevelPoliciesEnabled=false. 403: another role may be in charge of policies of topics.
            if error.status not in (403, 404, 405, 412):
                raise
        return self._call("GET", f"{_namespace_path(topic)}/{name}")

    # --- changing -----------------------------------------------------------------------------------

    def create_namespace(self, topic: TopicName) -> bool:
        """Create the namespace of a topic, and its tenant in all clusters; False if it exists; raise AdminError."""
        path = _namespace_path(topic)
        try:
            self._call("GET", path)
            return False
        except AdminError as error:
            if error.status != 404:
                raise
        try:
            self._call("PUT", path, {})
        except AdminError as error:
            if error.status != 404:
                raise
            clusters = self._call("GET", "/admin/v2/clusters")
            tenant = {"adminRoles": [], "allowedClusters": clusters}
            self._call("PUT", f"/admin/v2/tenants/{_quoted(topic.tenant)}", tenant)
            self._call("PUT", path, {})
        return True

    def grow(self, topic: TopicName, partitions: int) -> None:
        """Increase the partitions of a partitioned topic; raise AdminError."""
        self._call("POST", f"{_path(topic)}/partitions", partitions)

    def create(self, topic: TopicName, partitions: int) -> bool:
        """Create a topic (0: without partitions); return False if it exists already; raise AdminError."""
        path = _path(topic)
        try:
            if partitions:
                self._call("PUT", f"{path}/partitions", partitions)
            else:
                self._call("PUT", path)
        except AdminError as error:
            if error.status == 409:
                return False
            raise
        return True

    def keep(
        self, topic: TopicName, minutes: int = UNLIMITED, megabytes: int = UNLIMITED, level: Level = "namespace"
    ) -> Keeping:
        """Set the retention of the namespace, or of the topic alone; raise AdminError.

        Return the policies then in force. An existing policy of the topic still overrides that of the namespace, so
        check them.
        """
        path = _namespace_path(topic) if level == "namespace" else _path(topic)
        self._call("POST", f"{path}/retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes})
        inactive = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": False,
        }
        self._call("POST", f"{path}/inactiveTopicPolicies", inactive)
        return self.keeping(topic)

    # --- HTTP ---------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        """Return the decoded answer; raise AdminError."""
        return self._call("GET", path)

    def answer_headers(self, path: str) -> HTTPMessage:
        """Return the headers of an answer, whose body is not read; raise AdminError."""
        found: HTTPMessage = self._call("GET", path, take=lambda response, url: response.headers)
        return found

    def _call(self, method: str, path: str, body: object = None, take: Take | None = None) -> Any:
        problem = AdminError("no admin service is configured")
        for url in self.urls:
            if "@" in url:
                raise AdminError("got the url of an admin service with user info (hidden), expected http://host:port")
            try:
                return self._ask(method, url.rstrip("/") + path, body, take or self._decoded)
            except AdminError as error:
                if error.status and error.status < 500:
                    raise
                problem = error
        raise problem

    def _ask(self, method: str, url: str, body: object, take: Take) -> Any:
        for _ in range(MOST_REDIRECTS):
            answer = self._request(method, url, body, take)
            if not isinstance(answer, _Elsewhere):
                return answer
            url = _next_url(url, answer.location)
        raise RedirectError(f"{_shown_url(url)}: more than {MOST_REDIRECTS} redirects")

    def _request(self, method: str, url: str, body: object, take: Take) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self.headers()}
        try:
            request = urllib.request.Request(url, method=method, data=data, headers=headers)
            with self._opener.open(request, timeout=self.timeout_seconds) as response:
                return take(response, url)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (301, 302, 307, 308) and error.headers.get("Location"):
                    return _Elsewhere(error.headers["Location"])
                text = error.read(self.largest_answer_bytes)
            said = text.decode(errors="replace") or str(error.reason)
            raise AdminError(f"{method} {_shown_url(url)}: {error.code}{_reason(text)}", error.code, said) from None
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
    """Leaves redirects to the caller: brokers redirect PUT and POST to the owner, and urllib follows neither."""

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


def _path(topic: TopicName) -> str:
    return f"/admin/v2/persistent/{_quoted(topic.tenant)}/{_quoted(topic.namespace)}/{_quoted(topic.topic)}"


def _namespace_path(topic: TopicName) -> str:
    return f"/admin/v2/namespaces/{_quoted(topic.tenant)}/{_quoted(topic.namespace)}"


def _quoted(part: str) -> str:
    return quote(part, safe="")
