"""The commands `pulsar-proxy admin ...`, `config` and `log-level`: a question to a running proxy, and its answer.

Rule: exit code 0 when it was done; 1 when no proxy answers, or it refuses; 2 for wrong arguments or a wrong
configuration; 3 when the connection that is meant is not there (any more). Errors are one line on standard error.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from proxy.admin.ask import LONG_PATIENCE_SECONDS, AdminClient, NoAnswer, Refused
from proxy.admin.options import BAD_CONFIG, FAILED, BadOptions, add_where, admin_client, problems_of
from proxy.admin.routes import MODES
from proxy.admin.tables import CONNECTIONS, GROUPS, LIMITERS, QUEUE, Column, seconds, table
from proxy.config import ConfigError

NOT_THERE: Final = 3
_NOT_FOUND: Final = 404
_EXIT_CODES: Final = (
    "exit codes: 0 done; 1 no proxy answers, or it refuses; 2 wrong arguments or configuration; 3 no such connection"
)
_MOST_LINES: Final = 10_000

Command = Callable[[AdminClient, argparse.Namespace], int]


def add_admin(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Declare `pulsar-proxy admin`; `duration` reads seconds."""
    commands = parser.add_subparsers(required=True, metavar="WHAT")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, epilog=_EXIT_CODES)
        add_where(made)
        made.add_argument("--json", action="store_true", help="the API's own documents instead of a table")
        made.set_defaults(ask=run)
        return made

    connections = add("connections", _connections, "list Pulsar clients that are connected")
    connections.add_argument("--mode", choices=MODES, help="only those in this mode")
    connections.add_argument("--principal", metavar="NAME", help="only those of this principal, as it is shown")
    for listing in (
        connections,
        add("queue", _listing("/v1/queue", "waiters", QUEUE), "list who waits for memory or a broker's turn"),
        add("groups", _listing("/v1/groups", "groups", GROUPS), "list groups of equal requests under way"),
    ):
        listing.add_argument("--limit", type=_count, default=None, metavar="N", help="at most so many rows")
    add("limiters", _limiters, "show the books of all limiters")
    add("config", _config, "show the configuration in force, and where each value came from")
    add("kill", _kill, "end connections at once").add_argument("id", nargs="+", type=_count, metavar="ID")
    add_level(add("log-level", _level, "show or change the log level"), duration)
    add("reload", _reload, "read the configuration again, as SIGHUP does, and report")
    drain = add("drain", _drain, "leave, as at SIGTERM")
    drain.add_argument("--at-once", action="store_true", help="as at SIGINT: wait for no balancer and no application")


def add_level(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Declare what `log-level` takes."""
    parser.add_argument("level", nargs="?", choices=("debug", "info", "warning", "error"), help="without: show it")
    parser.add_argument("--for", dest="seconds", type=duration, metavar="S", help="return by itself after S seconds")


def run_admin(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run one of the commands and give the exit code."""
    return _asked(options, environ, options.ask)


def show_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the configuration in force and give the exit code."""
    return _asked(options, environ, _config)


def change_log_level(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Change the log level if one is given, print how it stands, and give the exit code."""
    options.json = False
    return _asked(options, environ, _level)


def _asked(options: argparse.Namespace, environ: Mapping[str, str], command: Command) -> int:
    try:
        return command(admin_client(options, environ), options)
    except (ConfigError, BadOptions) as error:
        print(*problems_of(error), sep="\n", file=sys.stderr)
        return BAD_CONFIG
    except (NoAnswer, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_THERE if isinstance(error, Refused) and error.status == _NOT_FOUND else FAILED
    except BrokenPipeError:
        # `... | head` has seen enough; what is unsent must not be tried again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**15:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 1")
    return int(text)


# --- what is shown ----------------------------------------------------------------------------------


def _print_json(document: object) -> None:
    print(json.dumps(document, separators=(",", ":")))


def _print_table(columns: tuple[Column, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    for line in table(columns, rows):
        print(line)


def _connections(client: AdminClient, options: argparse.Namespace) -> int:
    query = {"mode": options.mode, "principal": options.principal}
    wanted = {name: value for name, value in query.items() if value is not None}
    rows = client.pages("/v1/connections", "connections", wanted, options.limit)
    if options.json:
        # One a line: there may be very many.
        for row in rows:
            _print_json(row)
    else:
        _print_table(CONNECTIONS, rows)
    return 0


def _listing(path: str, name: str, columns: tuple[Column, ...]) -> Command:
    def show(client: AdminClient, options: argparse.Namespace) -> int:
        limit = "" if options.limit is None else f"?limit={min(options.limit, _MOST_LINES)}"
        document = client.ask("GET", path + limit)
        _print_json(document) if options.json else _print_table(columns, document[name])
        return 0

    return show


def _limiters(client: AdminClient, options: argparse.Namespace) -> int:
    document = client.ask("GET", "/v1/limiters")
    if options.json:
        _print_json(document)
    else:
        _print_table(LIMITERS, ({"name": name, **books} for name, books in document["limiters"].items()))
    return 0


def _config(client: AdminClient, options: argparse.Namespace) -> int:
    document = client.ask("GET", "/v1/config")
    if options.json:
        _print_json(document)
        return 0
    for name, entry in document["keys"].items():
        waits = f"; after a restart: {entry['pending_restart']}" if "pending_restart" in entry else ""
        print(f"{name}={entry['value']}  # {entry['source']}{waits}")
    return 0


# --- what is changed --------------------------------------------------------------------------------


def _kill(client: AdminClient, options: argparse.Namespace) -> int:
    code = 0
    for number in options.id:
        try:
            row = client.ask("DELETE", f"/v1/connections/{number}")
        except Refused as error:
            print(f"error: {error}", file=sys.stderr)
            code = max(code, NOT_THERE if error.status == _NOT_FOUND else FAILED)
            continue
        _print_json(row) if options.json else print(f"killed {number}: {row['client']}, {row['mode']}")
    return code


def _level(client: AdminClient, options: argparse.Namespace) -> int:
    if options.seconds is not None and options.level is None:
        raise BadOptions("--for: expected a level in front of it")
    if options.level is None:
        answer = client.ask("GET", "/v1/log-level")
    else:
        answer = client.ask("PUT", "/v1/log-level", {"level": options.level, "seconds": options.seconds})
    left = answer["seconds_left"]
    if options.json:
        _print_json(answer)
    else:
        print(answer["level"] if left is None else f"{answer['level']} for {left:.0f} s, then {answer['configured']}")
    return 0


def _reload(client: AdminClient, options: argparse.Namespace) -> int:
    try:
        report, code = client.ask("POST", "/v1/reload", {}, LONG_PATIENCE_SECONDS), 0
    except Refused as error:
        if "result" not in error.document:
            raise
        report, code = error.document, FAILED
    if options.json:
        _print_json(report)
        return code
    for change in report["changed"]:
        print(f"changed {change['key']}: {change['old']} -> {change['new']}")
    for change in report["needs_restart"]:
        print(f"needs a restart {change['key']}: {change['old']} -> {change['new']}")
    for warning in report["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    for fault in report["faults"]:
        place = f"{fault['file']}:{fault['line']}" if fault["line"] else fault["file"]
        print(f"error: {place}: {fault['key']}: got {fault['got']}, expected {fault['expected']}", file=sys.stderr)
    if code:
        print(f"error: {report['reason']}", file=sys.stderr)
    else:
        print(report["result"])
    return code


def _drain(client: AdminClient, options: argparse.Namespace) -> int:
    begun = client.ask("POST", "/v1/drain", {"at_once": options.at_once})
    if options.json:
        _print_json(begun)
    else:
        longest = seconds(begun["longest_seconds"])
        print(f"{begun['phase']}: {begun['connections']} connections, at most {longest}")
    return 0
