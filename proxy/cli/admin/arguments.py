"""The options of `pulsar-proxy admin`, and the options shared by all commands that ask a running proxy.

Rule: this module only declares options; `proxy.cli.admin.command` runs the commands. The start of `serve` loads every
option and must not load the code of other commands.
"""

import argparse
from collections.abc import Callable
from typing import Final

from proxy.config.keys.log_components import COMPONENTS, LEVELS
from proxy.web.admin.routes import DEFAULT_PAGE, LONGEST_PROFILE_SECONDS, MODES

EXIT_CODES: Final = (
    "exit codes: 0 success; 1 no answer, or a refusal of the proxy; 2 wrong arguments or configuration; "
    "3 no such connection"
)
_WHAT: Final = {
    "connections": "list the connected Pulsar clients",
    "queue": "list the requests that wait for memory or for a broker",
    "groups": "list the groups of equal requests in progress",
    "limiters": "show limit, use and queue of every limiter",
    "config": "show the configuration in force, and the source of each value",
    "kill": "close connections at once",
    "log-level": "show or change the log level",
    "set": "change a key that takes effect without a restart, for a while or until the next reload",
    "stacks": "show where each thread and each task of the process is",
    "profile": "look for some seconds where the threads of the process are, and what they use",
    "pause": "turn new clients away and be not ready, for a while or until resume",
    "resume": "take new clients again",
    "reload": "read the configuration again, as on SIGHUP, and report the changes",
    "drain": "drain the proxy and stop it, as on SIGTERM",
    "undrain": "call off a drain of the admin API before it is over",
}
_LISTINGS: Final = {
    "connections": "print at most N rows (default: all)",
    "queue": f"print at most N rows of each queue (default {DEFAULT_PAGE})",
    "groups": f"print at most N rows (default {DEFAULT_PAGE})",
}


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a proxy."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", metavar="PATH", help="control socket of the proxy")
    where.add_argument(
        "--config", metavar="FILE", help="proxy.conf that names the socket; the environment overrides it"
    )
    where.add_argument("--address", metavar="HOST:PORT", help="adminApiAddress of the proxy; needs --token-file")
    parser.add_argument("--token-file", metavar="FILE", help="file with the token for --address")


def add_level(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Add the options of `log-level`; `duration` parses seconds."""
    parser.add_argument(
        "level",
        nargs="?",
        choices=tuple(LEVELS),
        help="new level; show the current level if none is given",
    )
    parser.add_argument(
        "--for", dest="seconds", type=duration, metavar="S", help="change back to the configured level after S s"
    )
    parser.add_argument(
        "--component", choices=tuple(COMPONENTS), help="part of the log whose level is meant; the others keep theirs"
    )


def add_admin(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Add all commands of `pulsar-proxy admin`; `duration` parses seconds."""
    commands = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    made = {}
    for name, text in _WHAT.items():
        command = made[name] = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        add_where(command)
        command.add_argument("--json", action="store_true", help="print the documents of the API instead of a table")
        if name in _LISTINGS:
            command.add_argument("--limit", type=_count, default=None, metavar="N", help=_LISTINGS[name])
    made["connections"].add_argument("--mode", choices=MODES, help="list only connections in this mode")
    made["connections"].add_argument(
        "--principal", metavar="NAME", help="list only connections of this principal, spelled as listed"
    )
    made["kill"].add_argument(
        "id", nargs="+", type=_count, metavar="ID", help="id of a connection, as `connections` lists it"
    )
    add_level(made["log-level"], duration)
    made["set"].add_argument("setting", metavar="KEY=VALUE", help="key and new value, as in proxy.conf")
    made["set"].add_argument(
        "--for", dest="seconds", type=duration, metavar="S", help="take the change back after S s (also 10m, 2h)"
    )
    made["pause"].add_argument(
        "--for", dest="seconds", type=duration, metavar="S", help="take new clients again after S s (also 10m, 2h)"
    )
    made["profile"].add_argument(
        "--seconds", type=duration, default=5.0, metavar="N",
        help=f"duration of the profile, at most {LONGEST_PROFILE_SECONDS:.0f} s (default 5)",
    )  # fmt: skip
    made["profile"].add_argument(
        "--folded", action="store_true", help="print a line for each stack, as tools that draw flame graphs read it"
    )
    made["drain"].add_argument(
        "--at-once", action="store_true", help="skip the waits for a balancer and an application, as on SIGINT"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**15:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 1")
    return int(text)
