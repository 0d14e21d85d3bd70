"""The command `pulsar-proxy top`: find the proxy, ask, show, and again.

Rule: a terminal gets the live view, or with `--plain` a screen that is redrawn in place and takes no keys; anything
else gets plain lines; one clear line and exit code 1 when no proxy answers.
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

# Where there is no terminal: wide enough for a refusal with its holders.
PLAIN_SIZE: Final = (240, 50)
# Home, and below the lines: erase what an earlier, longer screen left. Clearing first would flicker.
_HOME: Final = "\x1b[H"
_ERASE_LINE: Final = "\x1b[K"
_ERASE_BELOW: Final = "\x1b[J"

Show = Callable[[Mapping[str, Any]], None]


def run_top(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Run the command with its parsed options and give the exit code."""
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
            _watch(client, show, None if options.once else options.interval)
    except NoAnswer as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print()
    return 0


def _view(client: AdminClient, interval_seconds: float) -> None:
    # Only this needs a terminal's library.
    from proxy.cli.top.live_view import show

    # Before the screen is taken: a proxy that does not answer is one line of text.
    client.top()
    show(client, interval_seconds, _draw)


def _watch(client: AdminClient, show: Show, interval_seconds: float | None) -> None:
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
    # Each line is erased before it is written: an erase after a full line would take the line's last column.
    print(_HOME + "".join(f"{_ERASE_LINE}{line}\n" for line in lines) + _ERASE_BELOW, end="", flush=True)
