"""The commands `pulsar-proxy admin ...`, `config` and `log-level`: send a request to a running proxy, print the answer.

Rule: the exit code is 0 on success, 1 if no proxy answers or the proxy refuses, 2 for wrong arguments or a wrong
configuration, 3 if there is no connection with the given id. An error is a line on standard error.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Final

from proxy.cli.admin.client import LONG_PATIENCE_SECONDS, AdminClient, NoAnswer, Refused
from proxy.cli.admin.options import BAD_CONFIG, FAILED, BadOptions, admin_client, problems_of
from proxy.cli.admin.profile import show_profile
from proxy.cli.admin.tables import CONNECTIONS, GROUPS, LIMITERS, QUEUE, Column, seconds, table
from proxy.config.config import ConfigError

NOT_THERE: Final = 3
_NOT_FOUND: Final = 404
_MOST_LINES: Final = 10_000

Document = Mapping[str, Any]
Ask = Callable[[AdminClient, argparse.Namespace], Document]
Command = Callable[[AdminClient, argparse.Namespace], int]


def run_admin(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run a command of `pulsar-proxy admin` and return the exit code."""
    return _asked(options, environ, _COMMANDS[options.what])


def show_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the configuration in force and return the exit code."""
    return _asked(options, environ, _COMMANDS["config"])


def change_log_level(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Change the log level if an option names a level, print the level, and return the exit code."""
    options.json = False
    return _asked(options, environ, _COMMANDS["log-level"])


def _asked(options: argparse.Namespace, environ: Mapping[str, str], command: Command) -> int:
    try:
        return command(admin_client(options, environ), options)
    except (ConfigError, BadOptions) as error:
        print(*problems_of(error), sep="\n", file=sys.stderr)
        return BAD_CONFIG
    except (NoAnswer, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_THERE if isinstance(error, Refused) and error.status == _NOT_FOUND else FAILED


# --- shown ----------------------------------------------------------------------------------


def _print_json(document: object) -> None:
    print(json.dumps(document, separators=(",", ":")))


def _shows(ask: Ask, lines: Callable[[Document], Iterable[str]]) -> Command:
    """Return the command that prints the document of an answer, as JSON or as these lines."""

    def show(client: AdminClient, options: argparse.Namespace) -> int:
        document = ask(client, options)
        if options.json:
            _print_json(document)
        else:
            for line in lines(document):
                print(line)
        return 0

    return show


def _get(path: str) -> Ask:
    return lambda client, _: client.ask("GET", path)


def _print_table(columns: tuple[Column, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    asked = iter(rows)
    # The first row is asked for before the titles are printed: without an answer standard output stays empty.
    first = list(islice(asked, 1))
    for line in table(columns, chain(first, asked)):
        print(line)


def _connections(client: AdminClient, options: argparse.Namespace) -> int:
    query = {"mode": options.mode, "principal": options.principal}
    wanted = {name: value for name, value in query.items() if value is not None}
    rows = client.pages("/v1/connections", "connections", wanted, options.limit)
    if options.json:
        # A document for each row: there may be too many rows for a single document.
        for row in rows:
            _print_json(row)
    else:
        _print_table(CONNECTIONS, rows)
    return 0


def _listing(path: str, name: str, columns: tuple[Column, ...]) -> Command:
    def show(client: AdminClient, options: argparse.Namespace) -> int:
        limit = "" if options.limit is None else f"?limit={min(options.limit, _MOST_LINES)}"
        document = client.ask("GET", path + limit)
        if options.json:
            _print_json(document)
            return 0
        _print_table(columns, document[name])
        shown = len(document[name])
        there = document["total"] if "total" in document else sum(document["lines"].values())
        if shown < there:
            print(f"showing {shown} of {there}; raise --limit to see more (at most {_MOST_LINES})", file=sys.stderr)
        return 0

    return show


def _limiters(document: Document) -> Iterable[str]:
    return table(LIMITERS, ({"name": name, **row} for name, row in document["limiters"].items()))


def _config(document: Document) -> Iterator[str]:
    for name, entry in document["keys"].items():
        waits = f"; after a restart: {entry['pending_restart']}" if "pending_restart" in entry else ""
        yield f"{name}={entry['value']}  # {entry['source']}{waits}"


def _stacks(document: Document) -> Iterator[str]:
    for thread in document["threads"]:
        yield f"thread {thread['name']}"
        yield from (f"  {line}" for line in thread["lines"])
    yield f"tasks: {document['tasks_total']}"
    for task in document["tasks"]:
        yield f"  {task['name']}  {task['line']}"


# --- changed --------------------------------------------------------------------------------


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


def _ask_level(client: AdminClient, options: argparse.Namespace) -> Document:
    if options.seconds is not None and options.level is None:
        raise BadOptions("--for: expected a level before this option")
    if options.component is not None and options.level is None:
        raise BadOptions("--component: expected a level before this option")
    if options.level is None:
        return client.ask("GET", "/v1/log-level")
    asked = {"level": options.level, "seconds": options.seconds}
    if options.component is not None:
        asked["component"] = options.component
    return client.ask("PUT", "/v1/log-level", asked)


def _level(answer: Document) -> Iterator[str]:
    yield _level_text(answer, answer)
    for component, own in answer.get("components", {}).items():
        yield f"{component}: {_level_text(own, answer)}"


def _level_text(level: Document, whole: Document) -> str:
    left, later = level["seconds_left"], level["configured"] or whole["level"]
    return str(level["level"]) if left is None else f"{level['level']} for {left:.0f} s, then {later}"


def _ask_set(client: AdminClient, options: argparse.Namespace) -> Document:
    name, separator, value = options.setting.partition("=")
    if not separator:
        raise BadOptions("set: expected KEY=VALUE")
    asked = {"key": name.strip(), "value": value.strip(), "seconds": options.seconds}
    return client.ask("PUT", "/v1/config", {name: value for name, value in asked.items() if value is not None})


def _set(change: Document) -> Iterator[str]:
    until = "until the next reload" if change["seconds"] is None else f"for {seconds(change['seconds'])}"
    yield f"{change['key']}: {change['old']} -> {change['new']}, {until}"


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


def _ask_pause(client: AdminClient, options: argparse.Namespace) -> Document:
    return client.ask("POST", "/v1/pause", {} if options.seconds is None else {"seconds": options.seconds})


def _accepting(answer: Document) -> Iterator[str]:
    left = answer["seconds_left"]
    until = "until resume" if left is None else f"for {seconds(left)}"
    state = "accepting" if answer["accepting"] else f"paused {until}"
    yield f"{state}: {answer['connections']} connections"


def _phase(answer: Document) -> Iterator[str]:
    longest = f", at most {seconds(answer['longest_seconds'])}" if "longest_seconds" in answer else ""
    yield f"{answer['phase']}: {answer['connections']} connections{longest}"


_COMMANDS: Final[Mapping[str, Command]] = {
    "connections": _connections,
    "queue": _listing("/v1/queue", "waiters", QUEUE),
    "groups": _listing("/v1/groups", "groups", GROUPS),
    "limiters": _shows(_get("/v1/limiters"), _limiters),
    "config": _shows(_get("/v1/config"), _config),
    "kill": _kill,
    "log-level": _shows(_ask_level, _level),
    "set": _shows(_ask_set, _set),
    "stacks": _shows(_get("/v1/stacks"), _stacks),
    "profile": show_profile,
    "pause": _shows(_ask_pause, _accepting),
    "resume": _shows(lambda client, _: client.ask("POST", "/v1/resume", {}), _accepting),
    "reload": _reload,
    "drain": _shows(lambda client, options: client.ask("POST", "/v1/drain", {"at_once": options.at_once}), _phase),
    "undrain": _shows(lambda client, _: client.ask("POST", "/v1/undrain", {}), _phase),
}
