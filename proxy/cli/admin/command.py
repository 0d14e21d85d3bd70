"""The commands `pulsar-proxy admin ...`, `config` and `log-level`: send a request to a running proxy, print the answer.

Rule: the exit code is 0 on success, 1 if no proxy answers or the proxy refuses, 2 for wrong arguments or a wrong
configuration, 3 if there is no connection with the given id. An error is a line on standard error.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
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

Command = Callable[[AdminClient, argparse.Namespace], int]


def run_admin(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run a command of `pulsar-proxy admin` and return the exit code."""
    return _asked(options, environ, _COMMANDS[options.what])


def show_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the configuration in force and return the exit code."""
    return _asked(options, environ, _config)


def change_log_level(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Change the log level if an option names a level, print the level, and return the exit code."""
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


# --- shown ----------------------------------------------------------------------------------


def _print_json(document: object) -> None:
    print(json.dumps(document, separators=(",", ":")))


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


def _limiters(client: AdminClient, options: argparse.Namespace) -> int:
    document = client.ask("GET", "/v1/limiters")
    if options.json:
        _print_json(document)
    else:
        _print_table(LIMITERS, ({"name": name, **row} for name, row in document["limiters"].items()))
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


def _level(client: AdminClient, options: argparse.Namespace) -> int:
    if options.seconds is not None and options.level is None:
        raise BadOptions("--for: expected a level before this option")
    if options.component is not None and options.level is None:
        raise BadOptions("--component: expected a level before this option")
    if options.level is None:
        answer = client.ask("GET", "/v1/log-level")
    else:
        asked = {"level": options.level, "seconds": options.seconds}
        if options.component is not None:
            asked["component"] = options.component
        answer = client.ask("PUT", "/v1/log-level", asked)
    if options.json:
        _print_json(answer)
    else:
        print(_level_text(answer, answer))
        for component, own in answer.get("components", {}).items():
            print(f"{component}: {_level_text(own, answer)}")
    return 0


def _level_text(level: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    left, later = level["seconds_left"], level["configured"] or whole["level"]
    return str(level["level"]) if left is None else f"{level['level']} for {left:.0f} s, then {later}"


def _set(client: AdminClient, options: argparse.Namespace) -> int:
    name, separator, value = options.setting.partition("=")
    if not separator:
        raise BadOptions("set: expected KEY=VALUE")
    asked = {"key": name.strip(), "value": value.strip(), "seconds": options.seconds}
    change = client.ask("PUT", "/v1/config", {name: value for name, value in asked.items() if value is not None})
    if options.json:
        _print_json(change)
        return 0
    until = "until the next reload" if change["seconds"] is None else f"for {seconds(change['seconds'])}"
    print(f"{change['key']}: {change['old']} -> {change['new']}, {until}")
    return 0


def _stacks(client: AdminClient, options: argparse.Namespace) -> int:
    document = client.ask("GET", "/v1/stacks")
    if options.json:
        _print_json(document)
        return 0
    for thread in document["threads"]:
        print(f"thread {thread['name']}")
        for line in thread["lines"]:
            print(f"  {line}")
    print(f"tasks: {document['tasks_total']}")
    for task in document["tasks"]:
        print(f"  {task['name']}  {task['line']}")
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


def _undrain(client: AdminClient, options: argparse.Namespace) -> int:
    answer = client.ask("POST", "/v1/undrain", {})
    if options.json:
        _print_json(answer)
    else:
        print(f"{answer['phase']}: {answer['connections']} connections")
    return 0


def _pause(client: AdminClient, options: argparse.Namespace) -> int:
    asked = {} if options.seconds is None else {"seconds": options.seconds}
    return _print_accepting(client.ask("POST", "/v1/pause", asked), options)


def _resume(client: AdminClient, options: argparse.Namespace) -> int:
    return _print_accepting(client.ask("POST", "/v1/resume", {}), options)


def _print_accepting(answer: Mapping[str, Any], options: argparse.Namespace) -> int:
    if options.json:
        _print_json(answer)
        return 0
    left = answer["seconds_left"]
    until = "until resume" if left is None else f"for {seconds(left)}"
    state = "accepting" if answer["accepting"] else f"paused {until}"
    print(f"{state}: {answer['connections']} connections")
    return 0


_COMMANDS: Final[Mapping[str, Command]] = {
    "connections": _connections,
    "queue": _listing("/v1/queue", "waiters", QUEUE),
    "groups": _listing("/v1/groups", "groups", GROUPS),
    "limiters": _limiters,
    "config": _config,
    "kill": _kill,
    "log-level": _level,
    "set": _set,
    "stacks": _stacks,
    "profile": show_profile,
    "pause": _pause,
    "resume": _resume,
    "reload": _reload,
    "drain": _drain,
    "undrain": _undrain,
}
