"""Every route of the admin API, declared once: the server finds them here, docs/reference/admin.md is made of them.

Rule: a route is added, never changed; fields of its document are added, never renamed. Nothing here does anything.
"""

from dataclasses import dataclass
from typing import Final, Literal

from proxy.web.http.paths import values_in

Kind = Literal["number", "whole", "text", "flag"]

LARGEST_PAGE: Final = 10_000
_LONGEST_NUMBER: Final = 15


class BadParameter(ValueError):
    """A parameter or a field that its route cannot take; the text says what it takes."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query, or one field of a body; a number has its bounds, a text may have its choices."""

    name: str
    kind: Kind
    doc: str
    least: float = 0
    most: float = 0
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """Say what a value may be."""
        if self.kind == "number":
            return f"a number from {self.least:g} to {self.most:g}"
        if self.kind == "whole":
            return f"a whole number from {self.least:.0f} to {self.most:.0f}"
        if self.kind == "flag":
            return "true or false"
        return f"one of {', '.join(self.choices)}" if self.choices else "a text"

    def of_text(self, text: str) -> float | str | bool:
        """Read a value out of a query, which has whole numbers and texts only; raises BadParameter."""
        if self.kind == "whole" and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER:
            return self.checked(int(text))
        return self.checked(text)

    def checked(self, value: object) -> float | str | bool:
        """Give `value` as it came, if it may be so; raises BadParameter."""
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
    """One route: `name` is what answers it, `changes` whether it does more than show, `fields` what the answer has."""

    method: str
    path: str
    name: str
    doc: str
    query: tuple[Parameter, ...] = ()
    body: tuple[Parameter, ...] = ()
    changes: bool = False
    fields: str = ""


def _limit(default: int, most: int = LARGEST_PAGE) -> Parameter:
    return Parameter("limit", "whole", f"At most so many; {default} without it.", 1, most)


DEFAULT_PAGE: Final = 100
_BIGGEST: Final = 10**15
MODES: Final = ("handshake", "lookup", "relay")
_LEVELS: Final = ("debug", "info", "warning", "error")

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1", "index", "This table.", fields="`routes`: `method`, `path`, `doc`, `changes`"),
    Route(
        "GET", "/v1/top", "top", "What `pulsar-proxy top` shows.",
        fields="see [monitoring.md](../monitoring.md#pulsar-proxy-top)",
    ),
    Route(
        "GET", "/v1/connections", "connections", "Pulsar clients that are connected, in the order in which they came.",
        query=(
            _limit(DEFAULT_PAGE),
            Parameter("after", "whole", "Only those with a larger id: the `next` of the page before.", 0, _BIGGEST),
            Parameter("mode", "text", "Only those in this mode.", choices=MODES),
            Parameter("principal", "text", "Only those of this principal, named as in the answer."),
        ),
        fields="`total` (all clients), `connections` ([rows](#a-connection)), `next` (null: that was the last page)",
    ),
    Route(
        "GET", "/v1/connections/{id}", "connection", "One of them.",
        fields="a [row](#a-connection); 404 if there is no such client",
    ),
    Route(
        "DELETE", "/v1/connections/{id}", "kill", "End a connection at once, with the cause `admin`.", changes=True,
        fields="the row it had; 404 if there is no such client, 409 if it is being accepted just now",
    ),
    Route(
        "GET", "/v1/limiters", "limiters", "The books of everything that limits topic lists, and of lookups.",
        fields="`limiters`: for `heap`, `direct`, `lookups` and the two lines of each broker that was lately asked "
        "(`questions to ...`, `heap on ...`) `unit`, `limit` (0: none), `held`, `peak_held`, `queue_size`, "
        "`growers_waiting`, `max_queue` (0: no limit), `queued`, `granted`, `timed_out`, `rejected`, `cancelled`, "
        "`overshoots`, `keys_waiting`, `keys_capped`, `debt`, `share_by_key`, `top_holders` (`owner`, `held`); "
        "`heap` and `direct` also `wait_p50_ms`, `wait_p99_ms`",
    ),
    Route(
        "GET", "/v1/queue", "queue", "Who waits for memory or for a broker's turn, next first in each line.",
        query=(_limit(DEFAULT_PAGE),),
        fields="`lines`: number of waiters by line; `waiters`: the first `limit` of each line, 10,000 in all, with "
        "`line`, `owner`, `namespace` (null for what is about none), `asked`, `unit`, `waited_seconds`, "
        "`seconds_left`, `grows` (it holds memory and waits for more)",
    ),
    Route(
        "GET", "/v1/groups", "groups", "Groups of equal topic-list requests under way, the oldest first.",
        query=(_limit(DEFAULT_PAGE),),
        fields="`total`, `groups`: `namespace`, `principal`, `broker`, `stage` (what it waits for, as in refusals), "
        "`members`, `clients` (the first three), `shared`, `joinable`, `age_seconds`, `holds` (by limiter)",
    ),
    Route(
        "GET", "/v1/config", "config", "The configuration in force; secrets are hidden.",
        fields="`keys`: by key `value`, `origin`, `source`, `dynamic`, `pending_restart` if another value waits; "
        "`http_reverse_proxies`, `restart_needed`, `log_level`",
    ),
    Route(
        "GET", "/v1/log-level", "log_level", "The log level.",
        fields="`level`, `configured` (what it returns to), `seconds_left` (null: it does not return by itself)",
    ),
    Route(
        "PUT", "/v1/log-level", "set_log_level", "Change the log level, for a while or until the next reload.",
        body=(
            Parameter("level", "text", "The new level; always needed.", choices=_LEVELS),
            Parameter("seconds", "number", "Return to the configured level after so long.", 0.1, 86_400),
        ),
        changes=True,
        fields="as above",
    ),
    Route(
        "POST", "/v1/reload", "reload", "Read the configuration again, as SIGHUP does, and say what became of it.",
        changes=True,
        fields="`result` (`applied`; with 422 `refused`, with 409 `ignored`: it is stopping), `changed`, "
        "`needs_restart` (each `key`, `old`, `new`), `faults` (`file`, `line`, `key`, `got`, `expected`), `warnings`, "
        "`reason`",
    ),
    Route(
        "POST", "/v1/drain", "drain", "Leave, as at SIGTERM.",
        body=(Parameter("at_once", "flag", "As at SIGINT: wait for no balancer and no application."),),
        changes=True,
        fields="`phase`, `connections`, `longest_seconds`; 409 if it is leaving already",
    ),
)  # fmt: skip


def find(method: str, segments: list[str]) -> tuple[Route, dict[str, str]] | tuple[None, tuple[str, ...]]:
    """Give the route of a path and the values in it; else None, and the methods that the path has."""
    methods = []
    for route in ROUTES:
        values = values_in(route.path, segments)
        if values is None:
            continue
        if route.method == method:
            return route, values
        methods.append(route.method)
    return None, tuple(methods)
