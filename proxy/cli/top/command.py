"""The command `pulsar-proxy top`: find the proxy, then fetch and show its document at each interval.

Rule: a terminal gets the live view, or with `--plain` a screen that is redrawn in place and takes no keys. Other
outputs get plain lines. If no proxy answers, the command prints a line and exits with code 1.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxy.cli.admin.client import AdminClient, NoAnswer
from proxy.cli.admin.options import BAD_CONFIG, FAILED, BadOptions, admin_client, problems_of
from proxy.cli.top.screen import render
from proxy.config.config import ConfigError

# The size without a terminal: wide enough for a refusal with its holders.
PLAIN_SIZE: Final = (240, 50)
# Move the cursor home, and after the lines erase the rest of a longer screen. Clearing first would flicker.
_HOME: Final = "\x1b[H"
_ERASE_LINE: Final = "\x1b[K"
_ERASE_BELOW: Final = "\x1b[J"

Show = Callable[[Mapping[str, Any]], None]


def run_top(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the command with its parsed options and return the exit code."""
    try:
        client = admin_client(options, environ)
    except (ConfigError, BadOptions) as error:
        print(*problems_of(error), sep="\n", file=sys.stderr)
        return BAD_CONFIG
    on_terminal = sys.stdout.isatty() and not options.once and not options.json
    show = _show_json if options.json else _show_screen if on_terminal else _show_plain
    try:
        if on_terminal and not options.plain and sys.stdin.isatty():
            _view(client, options.interval)
        else:
            watch(client, show, None if options.once else options.interval)
    except NoAnswer as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print()
    return 0


def _view(client: AdminClient, interval_seconds: float) -> None:
    # Only the live view needs the terminal's modules.
    from proxy.cli.top.live_view import show

    # Ask before the screen is switched, so that an error stays on the shell's screen.
    client.top()
    show(client, interval_seconds, _draw)


def watch(client: AdminClient, show: Show, interval_seconds: float | None) -> None:
    """Print the view again after each interval; without one print it once."""
    while True:
        show(client.top())
        if interval_seconds is None:
            return
        time.sleep(interval_seconds)


def _show_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, separators=(",", ":")), flush=True)


def _show_plain(document: Mapping[str, Any]) -> None:
    print("\n".join(render(document, shutil.get_terminal_size(PLAIN_SIZE).columns)), flush=True)


def _show_screen(document: Mapping[str, Any]) -> None:
    _draw(lambda columns, lines: render(document, columns, lines))


def _draw(screen: Callable[[int, int], Sequence[str]]) -> None:
    size = shutil.get_terminal_size()
    lines = screen(size.columns, size.lines - 1)
    # Erase each line before it is written: an erase after a full line would remove its last column.
    print(_HOME + "".join(f"{_ERASE_LINE}{line}\n" for line in lines) + _ERASE_BELOW, end="", flush=True)
