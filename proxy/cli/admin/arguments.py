"""The options of `pulsar-proxy admin`, and those that all commands have which ask a running proxy.

Rule: declared here, carried out by `proxy.admin.command`: `serve` reads these with every other option at its start and
must not pay for what the commands need.
"""

import argparse
from collections.abc import Callable
from typing import Final

from proxy.web.admin.routes import DEFAULT_PAGE, MODES

EXIT_CODES: Final = (
    "exit codes: 0 done; 1 no proxy answers, or it refuses; 2 wrong arguments or configuration; 3 no such connection"
)
_WHAT: Final = {
    "connections": "list Pulsar clients that are connected",
    "queue": "list who waits for memory or a broker's turn",
    "groups": "list groups of equal requests under way",
    "limiters": "show the books of all limiters",
    "config": "show the configuration in force, and where each value came from",
    "kill": "end connections at once",
    "log-level": "show or change the log level",
    "reload": "read the configuration again, as SIGHUP does, and report",
    "drain": "leave, as at SIGTERM",
}
_LISTINGS: Final = {
    "connections": "at most so many rows (default: all)",
    "queue": f"at most so many rows of each line (default {DEFAULT_PAGE})",
    "groups": f"at most so many rows (default {DEFAULT_PAGE})",
}


def add_where(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which proxy is meant."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", metavar="PATH", help="control socket of the proxy")
    where.add_argument("--config", metavar="FILE", help="its proxy.conf: where the socket is (with the environment)")
    where.add_argument("--address", metavar="HOST:PORT", help="its adminApiAddress; needs --token-file")
    parser.add_argument("--token-file", metavar="FILE", help="file with the token for --address")


def add_level(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Declare what `log-level` takes; `duration` reads seconds."""
    parser.add_argument("level", nargs="?", choices=("debug", "info", "warning", "error"), help="without: show it")
    parser.add_argument("--for", dest="seconds", type=duration, metavar="S", help="return by itself after S seconds")


def add_admin(parser: argparse.ArgumentParser, duration: Callable[[str], float]) -> None:
    """Declare all commands of `pulsar-proxy admin`; `duration` reads seconds."""
    commands = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    made = {}
    for name, text in _WHAT.items():
        command = made[name] = commands.add_parser(name, help=text, description=text, epilog=EXIT_CODES)
        add_where(command)
        command.add_argument("--json", action="store_true", help="the API's own documents instead of a table")
        if name in _LISTINGS:
            command.add_argument("--limit", type=_count, default=None, metavar="N", help=_LISTINGS[name])
    made["connections"].add_argument("--mode", choices=MODES, help="only those in this mode")
    made["connections"].add_argument("--principal", metavar="NAME", help="only those of this principal, as it is shown")
    made["kill"].add_argument("id", nargs="+", type=_count, metavar="ID", help="as `connections` shows it")
    add_level(made["log-level"], duration)
    made["drain"].add_argument(
        "--at-once", action="store_true", help="as at SIGINT: wait for no balancer and no application"
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**15:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number from 1")
    return int(text)
