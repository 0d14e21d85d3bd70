"""Write docs/reference/admin.md from the table of routes of the admin API."""

from collections.abc import Mapping
from pathlib import Path

from proxy.web.admin.access import LEAST_TOKEN
from proxy.web.admin.listener import MOST_CONNECTIONS
from proxy.web.admin.paging import SLICE_ROWS
from proxy.web.admin.routes import ROUTES, Parameter, Route
from proxy.web.admin.slots import ANSWER_SECONDS, REQUEST_SECONDS
from proxy.web.admin.views import SLICE_LIMITERS
from scripts.generated import ROOT

PAGE = ROOT / "docs/reference/admin.md"
INTRODUCTION = f"""\
<!-- Written by scripts/generate_admin_doc.py from the table of routes; do not edit here. -->

# The admin API

HTTP/1.1 with JSON, one request a connection. It is served on the control socket (`controlSocketPath`), which only the
proxy's own user can open, and, if `adminApiAddress` is set, there too, without TLS, for whoever sends
`Authorization: Bearer` with the token in `adminApiTokenFilePath` (at least {LEAST_TOKEN} characters). There is no third
way in, and no part of it is on the web ports ([ADR 19](../adr/0019-admin-api.md)). `pulsar-proxy admin` and
`pulsar-proxy top` are made of it ([monitoring.md](../monitoring.md#ask-the-running-proxy)).

```console
$ curl -s --unix-socket /run/user/1000/pulsar-proxy-6650.sock http://localhost/v1/limiters | jq .limiters.heap
$ curl -s -H "Authorization: Bearer $(cat admin.token)" -X DELETE http://127.0.0.1:7070/v1/connections/4711
```

At most {MOST_CONNECTIONS} may ask at once at each of the two; one more gets 503. The request has to be there within
{REQUEST_SECONDS:g} s, the answer is cut after {ANSWER_SECONDS:g} s. Long answers are made and
written {SLICE_ROWS} rows at a time ({SLICE_LIMITERS} limiters), with traffic served in between: rows of one answer
are not of one moment. `/v1/queue` has those who waited when their line was come to, in the order of that moment, but
for those who have left since; pages of `/v1/connections` have all who were there throughout. An answer that is no
whole JSON was cut. Routes and fields may be added, none will change.

Whatever is wrong is `{{"reason": "..."}}`: 400 a parameter or field, 401 and 403 who may not, 404 no such path or
connection, 405 no such method, 409 not now, 413 body too large, 431 header too large, 500 a bug (the log has its
traceback), 503 too many at once, a token file that cannot be read, or a proxy that `serve` does not run (`reload`,
`drain`, `undrain`).

Each change is in the log as a warning `admin change`, before it is made, with `action`, what it is about, and `who`:
user and process id at the control socket, the address of who knew the token.

Sizes are bytes. Principals are named as in the log (`authenticationRoleLoggingAnonymizer`).
"""
CONNECTION = (
    ("`id`", "its number; given once in the life of the process, and kept when a client becomes a relay"),
    (
        "`client`, `principal`",
        "address and port, of a PROXY header if there was one; null without authentication",
    ),
    (
        "`mode`",
        "`handshake` (nothing is served yet), `lookup` (requests are answered by the proxy), `relay` (joined to a "
        "broker)",
    ),
    ("`broker`", "of a relay, else null"),
    ("`age_seconds`", "since it was accepted"),
    (
        "`from_client_bytes`, `to_client_bytes`",
        "what was read of it, and what was handed on to it; of a relay since it is one",
    ),
    (
        "`unsent_bytes`",
        "what waits in the proxy for one of the two sides to take it; the kernel's part is not in it",
    ),
    (
        "`held_bytes`",
        "memory of its own: large frames, answers that it does not take, watch frames that pass. Memory of a "
        "list is its group's (`/v1/groups`), which it may share",
    ),
    ("`requests`", "without an answer yet"),
    ("`idle_seconds`", "since a byte came or left, of a relay on the threads of the native engine; else null"),
    ("`spliced_bytes`", "of such a relay, what the kernel passed from one socket to the other without a copy; else 0"),
    (
        "`state`",
        "`tls_handshake`; `idle`, `busy`, `held: ...` (not read: too many `outstanding`, `output` not taken, a "
        "`large_frame` waits, `connecting`, its `turn`, `authenticating`, `age`, `command_bytes`); of a relay `open`, "
        "`half closed`, `waits for memory`, `paused: ...`, `client does not read`, `broker does not read`",
    ),
)
CONNECTION_END = "\nClients of the web ports are not among them."


def row(route: Route) -> str:
    path = f"`{route.method} {route.path}`"
    given = "; ".join(filter(None, (_parameters("query", route.query), _parameters("body", route.body))))
    return f"| {path} | {route.doc} | {given} | {route.fields} |"


def _parameters(kind: str, parameters: tuple[Parameter, ...]) -> str:
    if not parameters:
        return ""
    described = " ".join(f"`{each.name}`, {each.expected}: {each.doc[0].lower()}{each.doc[1:]}" for each in parameters)
    return f"{kind}: {described}"


def page() -> str:
    lines = [INTRODUCTION]
    for title, changes in (("What it shows", False), ("What it changes", True)):
        lines += [f"## {title}", "", "| route | does | takes | answers |", "|---|---|---|---|"]
        lines += [row(route) for route in ROUTES if route.changes == changes]
        lines.append("")
    lines += ["## A connection", "", "| field | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in CONNECTION]
    return "\n".join([*lines, CONNECTION_END]).rstrip() + "\n"


def files() -> Mapping[Path, str]:
    return {PAGE: page()}
