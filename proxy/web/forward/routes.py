"""Map a request's path to servers, and to the care that its answer needs; no I/O.

Rule: a path is judged as the broker will understand it (percent-decoded, without `;parameters`), and passed on
unchanged. Paths that two servers could understand differently are refused: such a path could evade a limit. Anybody
may ask for a path: it is looked at as a whole, and what is done for each segment is done for a few.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote

from proxy.config.sources import ReverseProxyRoute

_FUNCTIONS: Final = frozenset({"functions", "function", "sources", "source", "sinks", "sink", "worker", "worker-stats"})
_DOMAINS: Final = frozenset({"persistent", "non-persistent"})
_LISTS_OF_A_NAMESPACE: Final = frozenset({"topics", "destinations"})
# Segments from the kind on whose names have no separators: tenant, cluster and namespace. Names of topics, roles and
# subscriptions, which come later, may have any (the Java client writes them percent-encoded).
_PLAIN_NAMES: Final = {**dict.fromkeys(_DOMAINS, 3), "namespaces": 4}
_PLAIN_LOOKUP: Final = 4  # kind, domain, tenant, namespace
# The longest paths of the admin API have some 15; a slash in a name is percent-encoded, and does not count.
MOST_SLASHES: Final = 128
# Parameters are checked, too: some servers decode before they remove them.
_DOTS: Final = re.compile(r"[/\\]\.\.?(?:[/\\;]|\Z)")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")


class BadPath(ValueError):
    """A path that is refused; the text has the reason."""


class Care(Enum):
    """The special treatment of an answer."""

    NONE = "other"
    TOPIC_LIST = "topic_list"
    LOOKUP = "lookup"


class Group(Enum):
    """The servers that a built-in route leads to."""

    BROKERS = "brokers"
    FUNCTION_WORKERS = "function workers"


@dataclass(frozen=True, slots=True)
class Destination:
    """The servers of a request, and the namespace whose topics it lists; None for any other request.

    `heeds_roles`: the service does what the client's role may do, and not what the proxy may do that forwards for it.
    """

    servers: Group | ReverseProxyRoute
    care: Care = Care.NONE
    namespace: str | None = None
    heeds_roles: bool = True

    @property
    def to_third_party(self) -> bool:
        """Whether the servers are an operator's own, neither brokers nor function workers."""
        return isinstance(self.servers, ReverseProxyRoute)

    def with_slash(self, raw_path: str) -> str | None:
        """Return where a request of a route's own path without a final slash belongs; None for any other.

        Relative links of a page would lead past the route otherwise.
        """
        if isinstance(self.servers, Group):
            return None
        path, mark, query = raw_path.partition("?")
        parts = _parts(path)
        if path.endswith("/") or len(parts) != len(_parts(self.servers.path)):
            return None
        return "/" + "/".join(parts) + "/" + mark + query

    def asked_path(self, raw_path: str) -> str:
        """Return what stands behind the URL of a server, given the path and query of a request.

        The path of a route of the operator's own is left out, as are empty segments: so Jetty's
        ProxyServlet.Transparent has it, which is the Java proxy's.
        """
        if isinstance(self.servers, Group):
            return raw_path
        path, mark, query = raw_path.partition("?")
        rest = _parts(path)[len(_parts(self.servers.path)) :]
        end = "/" if rest and path.endswith("/") else ""
        return "".join(f"/{part}" for part in rest) + end + mark + query


class RouteTable:
    """The routes of a configuration; extra routes come before built-in routes, the longest path first."""

    def __init__(self, extra: tuple[ReverseProxyRoute, ...] = ()) -> None:
        self.extra = tuple(sorted(extra, key=lambda route: len(_segments(route.path)), reverse=True))
        self._extra = [(_segments(route.path), route) for route in self.extra]

    def hides(self, segments: list[str]) -> bool:
        """Return whether a route of the operator's own stands before the pages of this proxy: all but `/`, at its path
        and below.
        """
        return any(segments[: len(prefix)] == prefix and (prefix or not segments) for prefix, _ in self._extra)

    def find(self, method: str, segments: list[str]) -> Destination | None:
        """Return the destination of a path, None without a route; raises BadPath.

        `segments` are those that `checked_segments` returned.
        """
        for prefix, route in self._extra:
            if segments[: len(prefix)] == prefix:
                return Destination(route)
        top = segments[0] if segments else ""
        if top == "lookup":
            _check_plain(segments, _PLAIN_LOOKUP)
            return Destination(Group.BROKERS, Care.LOOKUP if method == "GET" and _is_lookup(segments) else Care.NONE)
        if top == "ws":
            # The service of WebSockets does not know X-Original-Principal (pulsar-websocket, AbstractWebSocketHandler).
            return Destination(Group.BROKERS, heeds_roles=False)
        if top != "admin":
            return None
        below = _below_version(segments)
        _check_plain(segments, _PLAIN_NAMES.get(below[0], 1) if below else 1)
        if below and below[0] in _FUNCTIONS:
            return Destination(Group.FUNCTION_WORKERS)
        namespace = _listed_namespace(below) if method == "GET" else None
        return Destination(Group.BROKERS, Care.NONE if namespace is None else Care.TOPIC_LIST, namespace)


def checked_segments(raw_path: str) -> list[str]:
    """Decode the segments of a path without its query.

    Raises BadPath for a path with `.` or `..` segments, unusual characters, or more than `MOST_SLASHES`.
    """
    if not raw_path.startswith("/"):
        raise BadPath("expected a path that begins with /")
    if raw_path.count("/") > MOST_SLASHES:
        raise BadPath(f"expected a path of at most {MOST_SLASHES} slashes")
    if not raw_path.isascii() or not raw_path.isprintable() or any(sign in raw_path for sign in ' "<>\\^`{|}#'):
        raise BadPath("expected a path of printable ascii, other characters percent-encoded")
    for text in _readings(unquote(raw_path)):
        if _DOTS.search(text):
            raise BadPath("expected a path without . and .. segments")
        if _CONTROLS.search(text):
            raise BadPath("expected a path without control characters")
    return _segments(raw_path)


def _readings(decoded: str) -> tuple[str, str]:
    """Return what was decoded, and what those servers read that decode twice."""
    return decoded, unquote(decoded)


def _check_plain(segments: list[str], names: int) -> None:
    """Raise BadPath for separators inside the segments up to the version, or in the first `names` below it.

    A server that decodes before it splits would find another kind of request, or another namespace, in such a path.
    """
    first = len(segments) - len(_below_version(segments))
    for segment in segments[: first + names]:
        if any(sign in text for text in _readings(segment) for sign in "/\\;"):
            raise BadPath("expected a path without an encoded slash or semicolon before the topic's name")


def _segments(path: str) -> list[str]:
    # Skip empty segments, as servers that normalize paths do.
    return [unquote(part.partition(";")[0]) for part in _parts(path)]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _below_version(segments: list[str]) -> list[str]:
    versioned = len(segments) > 1 and segments[1][:1] == "v" and segments[1][1:].isdigit()
    return segments[2 if versioned else 1 :]


def _is_lookup(segments: list[str]) -> bool:
    # /lookup/v2/topic|destination/{domain}/..., but not .../{topic}/bundle, whose answer names no broker.
    kind = _below_version(segments)[:2]
    return len(kind) == 2 and kind[0] in ("topic", "destination") and kind[1] in _DOMAINS and segments[-1] != "bundle"


def _listed_namespace(below: list[str]) -> str | None:
    """Return the namespace whose topics a GET of this path lists.

    v2 has tenant/namespace, v1 tenant/cluster/namespace. `persistent/a/b/c` is a list in v1 and no route in v2, so
    treating it as a list is harmless.
    """
    if not below:
        return None
    kind, names = below[0], below[1:]
    if kind == "namespaces" and len(names) in (3, 4) and names[-1] in _LISTS_OF_A_NAMESPACE:
        return "/".join(names[:-1])
    if kind in _DOMAINS:
        names = names[:-1] if names and names[-1] == "partitioned" else names
        if len(names) in (2, 3):
            return "/".join(names)
    return None
