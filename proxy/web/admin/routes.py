"""Every route of the admin API, declared once for the server and for docs/reference/admin.md, which is generated.

Rule: routes are added, never changed; fields of their documents are added, never renamed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.config.keys.log_components import COMPONENTS, LEVELS
from proxy.web.http.paths import values_in

Kind = Literal["number", "whole", "text", "flag"]
# The values in the path, query and body of a request, by name.
Parameters = Mapping[str, Any]

LARGEST_PAGE: Final = 10_000
_LONGEST_NUMBER: Final = 15


class BadParameter(ValueError):
    """A parameter or a field that its route does not accept; the text says what it accepts."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query or a field of a body; a number has bounds, a text may have choices."""

    name: str
    kind: Kind
    doc: str
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """The values that are accepted, in words."""
        if self.kind == "number":
            return f"a number from {self.least:g} to {self.most:g}"
        if self.kind == "whole":
            return f"a whole number from {self.least:.0f} to {self.most:.0f}"
        if self.kind == "flag":
            return "true or false"
        return f"one of {', '.join(self.choices)}" if self.choices else "a text"

    def of_text(self, text: str) -> float | str | bool:
        """Return a value from the text in a query, where values are whole numbers and texts; raises BadParameter."""
        if self.kind == "whole" and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER:
            return self.checked(int(text))
        return self.checked(text)

    def checked(self, value: object) -> float | str | bool:
        """Return `value` unchanged if it is accepted; raises BadParameter otherwise."""
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if self._is_number(value):
            assert isinstance(value, int | float)
            if self.least <= value <= self.most:
                return value
        elif self.kind == "text" and isinstance(value, str) and (not self.choices or value in self.choices):
            return value
        raise self._bad(value)

    def _is_number(self, value: object) -> bool:
        kinds = {"number": (int, float), "whole": (int,)}.get(self.kind, ())
        return isinstance(value, kinds) and not isinstance(value, bool)

    def _bad(self, value: object) -> BadParameter:
        return BadParameter(f"{self.name}: got {str(value)[:80]!r}, expected {self.expected}")


@dataclass(frozen=True, slots=True)
class Route:
    """A route; a view or, with `changes`, an action answers it by its `name` (`by_route`), with `fields`."""

    method: str
    path: str
    name: str
    doc: str
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    changes: bool = False
    # Only clients of the control socket may use it.
    local: bool = False
    fields: str = ""


def _limit(default: int, most: int = LARGEST_PAGE) -> Parameter:
    return Parameter("limit", "whole", f"Most rows; default {default}.", 1, most)


DEFAULT_PAGE: Final = 100
_BIGGEST: Final = 10**15
MODES: Final = ("handshake", "lookup", "relay")
_LEVELS: Final = tuple(LEVELS)
# The answer to a profile must come within the time of an answer (`slots.ANSWER_SECONDS`).
LONGEST_PROFILE_SECONDS: Final = 20.0

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1", "index", "List all routes.", fields="`routes`: `method`, `path`, `doc`, `changes`"),
    Route(
        "GET", "/v1/top", "top", "Show the document of `pulsar-proxy top`.",
        fields="see [monitoring.md](../monitoring.md#pulsar-proxy-top)",
    ),
    Route(
        "GET", "/v1/connections", "connections", "List the connected Pulsar clients, oldest first.",
        query=(
            _limit(DEFAULT_PAGE),
            Parameter("after", "whole", "Only clients with a larger id: the `next` of the previous page.", 0, _BIGGEST),
            Parameter("mode", "text", "Only clients in this mode.", choices=MODES),
            Parameter("principal", "text", "Only clients of this principal, spelled as in the answer."),
        ),
        fields="`total` (all clients), `connections` ([rows](#a-connection)), `next` (null: that was the last page)",
    ),
    Route(
        "GET", "/v1/connections/{id}", "connection", "Show one client.",
        fields="a [row](#a-connection); 404 if there is no such client",
    ),
    Route(
        "DELETE", "/v1/connections/{id}", "kill", "Close a connection at once, with the cause `admin`.", changes=True,
        fields="the last row of the client; 404 if there is no such client, 409 if it is just being accepted",
    ),
    Route(
        "GET", "/v1/limiters", "limiters", "Show every limiter of topic lists and of lookups.",
        fields="`limiters`: by name ([what bounds what](../architecture.md#what-bounds-what); those of a broker for "
        "each that was asked recently) "
        "`unit`, `limit` (0: none), `held`, `peak_held`, `queue_size`, "
        "`growers_waiting`, `max_queue` (0: no limit), `queued`, `granted`, `timed_out`, `rejected`, `cancelled`, "
        "`overshoots`, `keys_waiting`, `keys_capped`, `debt`, `share_by_key`, `top_holders` (`owner`, `held`); "
        "`heap` and `direct` also `wait_p50_ms`, `wait_p99_ms`",
    ),
    Route(
        "GET", "/v1/queue", "queue", "List the requests that wait for memory or a broker, next first in each queue.",
        query=(_limit(DEFAULT_PAGE),),
        fields="`lines`: number of waiters by queue; `waiters`: the first `limit` of each queue, 10,000 in all, with "
        "`line` (the queue), `owner`, `namespace` (null if the request has none), `asked`, `unit`, `waited_seconds`, "
        "`seconds_left`, `grows` (the request holds memory and waits for more)",
    ),
    Route(
        "GET", "/v1/groups", "groups", "List the groups of equal topic-list requests in progress, oldest first.",
        query=(_limit(DEFAULT_PAGE),),
        fields="`total`, `groups`: `namespace`, `principal`, `broker`, `stage` (what the group waits for, as in "
        "refusals), `members`, `clients` (the first three), `shared`, `joinable`, `age_seconds`, `holds` (by limiter)",
    ),
    Route(
        "GET", "/v1/config", "config", "Show the configuration in force; secrets are hidden.",
        fields="`keys`: by key `value`, `origin`, `source`, `dynamic`, `pending_restart` if another value waits; "
        "`http_reverse_proxies`, `restart_needed`, `log_level`",
    ),
    Route(
        "GET", "/v1/log-level", "log_level", "Show the log level.",
        fields="`level`, `configured`, `seconds_left` until the level is the configured one again (null: it stays); "
        "`components`: the same by component, for those that do not follow the rest (an empty `configured`: later yes)",
    ),
    Route(
        "PUT", "/v1/log-level", "set_log_level",
        "Change the level of the log, or of one of its components, for a while or until the next reload.",
        body=(
            Parameter("level", "text", "The new level; always needed.", choices=_LEVELS),
            Parameter("seconds", "number", "Change back to the configured level after so many seconds.", 0.1, 86_400),
            Parameter("component", "text", "Only this part of the log.", choices=tuple(COMPONENTS)),
        ),
        changes=True,
        fields="as `GET /v1/log-level`",
    ),
    Route(
        "PUT", "/v1/config", "set_key",
        "Change a key that takes effect without a restart, for a while or until the next reload. Not keys of targets, "
        "credentials, authentication and TLS.",
        body=(
            Parameter("key", "text", "The key; always needed."),
            Parameter("value", "text", "The new value, as in proxy.conf; always needed."),
            Parameter("seconds", "number", "Take the change back after so many seconds.", 0.1, 86_400),
        ),
        changes=True,
        fields="`key`, `old`, `new`, `seconds`; 400 with the faults if the value is refused",
    ),
    Route(
        "GET", "/v1/stacks", "stacks", "Show where each thread and each task of the process is.",
        fields="`threads`: `name`, `lines` (innermost last); `tasks_total`, `tasks` (at most 200): `name`, `line`",
    ),
    Route(
        "POST", "/v1/reload", "reload", "Read the configuration again, as on SIGHUP, and report the result.",
        changes=True,
        fields="`result` (`applied`; with 422 `refused`; with 409 `ignored`, as the proxy is stopping), `changed`, "
        "`needs_restart` (each `key`, `old`, `new`), `faults` (`file`, `line`, `key`, `got`, `expected`), `warnings`, "
        "`reason`",
    ),
    Route(
        "POST", "/v1/drain", "drain", "Drain the proxy and stop it, as on SIGTERM.",
        body=(Parameter("at_once", "flag", "As on SIGINT: do not wait for a load balancer or an application."),),
        changes=True,
        fields="`phase`, `connections`, `longest_seconds`; 409 if the proxy is stopping already",
    ),
    Route(
        "POST", "/v1/undrain", "undrain",
        "Call off a drain that the admin API began, before it is over; clients that were closed come again.",
        changes=True,
        fields="`phase`, `connections`; 409 if nothing drains, a signal stops the proxy, or a port cannot be opened",
    ),
    Route(
        "POST", "/v1/pause", "pause",
        "Turn new Pulsar clients away, with the cause `paused`, and be not ready, for a while or until `resume`. The "
        "ports stay open; connected clients and the web ports go on.",
        body=(Parameter("seconds", "number", "Take new clients again after so many seconds.", 0.1, 86_400),),
        changes=True,
        fields="`accepting` (false), `seconds_left` (null: until `resume`), `connections`",
    ),
    Route(
        "POST", "/v1/resume", "resume", "End a pause; nothing happens without one.", changes=True,
        fields="`accepting` (true), `seconds_left` (null), `connections`",
    ),
    Route(
        "POST", "/v1/profile", "profile",
        "Look for some seconds, 100 times a second, where each Python thread is. One profile at a time.",
        body=(
            Parameter("seconds", "number", "How long; always needed.", 0.1, LONGEST_PROFILE_SECONDS),
        ),
        changes=True,
        fields="`seconds`, `samples`, `threads`: each thread of the process with `name`, `cpu_seconds` meanwhile; "
        "`functions`; `stacks`, most frequent first: `thread`, `calls` (indexes of `functions`, innermost last), "
        "`samples`; `left_out`: samples of further stacks; 409 while another profile is made",
    ),
    Route(
        "POST", "/v1/hand-over", "hand_over",
        "Give the listening sockets to another process of the same user, which accepts beside this one from then on "
        "(`serve --take-over`). Only on the control socket.",
        body=(
            Parameter("to", "text", "Name that the kernel chose for a socket of that process, such as @0001f; needed."),
        ),
        changes=True, local=True,
        fields="`pid`, `version`, `budget_bytes`, `sockets` (`address`, `key`, `broker`, `tls`, `removes_file`) in the "
        "order of the descriptors; 409 if the proxy is stopping or nobody takes them",
    ),
    Route(
        "POST", "/v1/hand-over/done", "hand_over_done",
        "Accept no more, because that process is ready; then drain and stop. Only on the control socket.",
        body=(Parameter("to", "text", "The name that was given the sockets; needed."),),
        changes=True, local=True,
        fields="`phase`, `connections`, `longest_seconds`, `control_socket` (its path from now on, null without one); "
        "409 if another process has got the sockets since",
    ),
)  # fmt: skip


def check_answered(shown: Collection[str], changed: Collection[str]) -> None:
    """Raise ValueError unless each route has a method that answers it, and each method a route."""
    for kind, changes, answered in (("views", False, shown), ("actions", True, changed)):
        declared = {route.name for route in ROUTES if route.changes is changes}
        if apart := sorted(declared ^ set(answered)):
            raise ValueError(f"routes and {kind} of the admin API differ: {', '.join(apart)}")


def find(method: str, segments: list[str]) -> tuple[Route, dict[str, str]] | tuple[None, tuple[str, ...]]:
    """Return the route of a path and the values in the path, or None and the methods that the path has."""
    methods = []
    for route in ROUTES:
        values = values_in(route.path, segments)
        if values is None:
            continue
        if route.method == method:
            return route, values
        methods.append(route.method)
    return None, tuple(methods)
