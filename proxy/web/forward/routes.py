"""Decide where a request's path leads: to which servers, and with which care; no I/O.

Rule: a path is judged as the broker will understand it (percent signs decoded, `;parameters` cut off), and passed on
as it came; what two servers could understand differently is refused, or a limit here could be walked around.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote

_FUNCTIONS: Final = frozenset({"functions", "function", "sources", "source", "sinks", "sink", "worker", "worker-stats"})
_DOMAINS: Final = frozenset({"persistent", "non-persistent"})
_LISTS_OF_A_NAMESPACE: Final = frozenset({"topics", "destinations"})


class BadPath(ValueError):
    """A path that is not passed on; the text says why."""


class Care(Enum):
    """What has to be done with an answer besides passing it on."""

    NONE = "other"
    TOPIC_LIST = "topic_list"
    LOOKUP = "lookup"


class Group(Enum):
    """The servers that a built-in route leads to."""

    BROKERS = "brokers"
    FUNCTION_WORKERS = "function workers"


@dataclass(frozen=True, slots=True)
class ExtraRoute:
    """One `httpReverseProxy.<name>`: requests below `path` go to the URL `proxy_to`."""

    name: str
    path: str
    proxy_to: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a request goes, and the namespace it lists (None: it lists none)."""

    servers: Group | ExtraRoute
    care: Care = Care.NONE
    namespace: str | None = None


class RouteTable:
    """The routes of a configuration; extra routes go before built-in ones, the longest first."""

    def __init__(self, extra: tuple[ExtraRoute, ...] = ()) -> None:
        self.extra = tuple(sorted(extra, key=lambda route: len(_segments(route.path)), reverse=True))
        self._extra = [(_segments(route.path), route) for route in self.extra]

    def find(self, method: str, raw_path: str) -> Destination | None:
        """Give the destination of a path as it stands in the request line, without its query; None for no route.

        Raises BadPath.
        """
        segments = checked_segments(raw_path)
        for prefix, route in self._extra:
            if segments[: len(prefix)] == prefix:
                return Destination(route)
        top = segments[0] if segments else ""
        if top == "lookup":
            return Destination(Group.BROKERS, Care.LOOKUP if method == "GET" and _is_lookup(segments) else Care.NONE)
        if top == "ws":
            return Destination(Group.BROKERS)
        if top != "admin":
            return None
        below = _below_version(segments)
        if below and below[0] in _FUNCTIONS:
            return Destination(Group.FUNCTION_WORKERS)
        namespace = _listed_namespace(below) if method == "GET" else None
        return Destination(Group.BROKERS, Care.NONE if namespace is None else Care.TOPIC_LIST, namespace)


def checked_segments(raw_path: str) -> list[str]:
    """Decode a path's segments; raises BadPath for one that leads elsewhere than it says."""
    if not raw_path.startswith("/"):
        raise BadPath("expected a path that begins with /")
    if not raw_path.isascii() or not raw_path.isprintable() or any(sign in raw_path for sign in ' "<>\\^`{|}#'):
        raise BadPath("expected a path of printable ascii, other characters percent-encoded")
    segments = _segments(raw_path)
    for segment in segments:
        # Decoded once more, for servers that do it twice.
        for text in (segment, unquote(segment)):
            if any(part in (".", "..") for part in text.replace("\\", "/").split("/")):
                raise BadPath("expected a path without . and .. segments")
            if any(ord(sign) < 0x20 or ord(sign) == 0x7F for sign in text):
                raise BadPath("expected a path without control characters")
    return segments


def _segments(path: str) -> list[str]:
    # Empty segments are passed over, as servers do that tidy paths up.
    return [unquote(part.partition(";")[0]) for part in path.split("/") if part]


def _below_version(segments: list[str]) -> list[str]:
    versioned = len(segments) > 1 and segments[1][:1] == "v" and segments[1][1:].isdigit()
    return segments[2 if versioned else 1 :]


def _is_lookup(segments: list[str]) -> bool:
    # /lookup/v2/topic|destination/{domain}/..., but not .../{topic}/bundle, whose answer names no broker.
    kind = _below_version(segments)[:2]
    return len(kind) == 2 and kind[0] in ("topic", "destination") and kind[1] in _DOMAINS and segments[-1] != "bundle"


def _listed_namespace(below: list[str]) -> str | None:
    """Give the namespace whose topics a GET of this path lists.

    v2 has tenant/namespace, v1 tenant/cluster/namespace. `persistent/a/b/c` is a list in v1 and nothing in v2, so that
    nothing is wrong with taking it for one.
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
