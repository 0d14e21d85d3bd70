"""The command `pulsar-proxy top`: find the socket, ask, show, and again.

Rule: a terminal is redrawn in place, anything else gets plain lines; one clear line and exit code 1 when no proxy
answers.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proxy.config import Config, ConfigError
from proxy.control import control_paths
from proxy.top.ask import NoAnswer, ask_top
from proxy.top.screen import render

FAILED: Final = 1
BAD_CONFIG: Final = 2
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
        paths = socket_paths(options, environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return BAD_CONFIG
    show = _show_json if options.json else _show_screen if sys.stdout.isatty() and not options.once else _show_plain
    try:
        _watch(paths, show, None if options.once else options.interval)
    except NoAnswer as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print()
    except BrokenPipeError:
        # `top | head` has seen enough; what is unsent must not be tried again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def socket_paths(options: argparse.Namespace, environ: Mapping[str, str]) -> Sequence[Path]:
    """Give the places where the control socket may be, best first; raises ConfigError."""
    if options.socket is not None:
        return [Path(options.socket)]
    # The one required key says nothing about the socket, so nobody has to give it here.
    config = Config.load(options.config, environ, {Config.broker_service_url.name: "pulsar://unused.invalid"})
    return list(control_paths(config.control_socket_path, config.client_port, environ))


def _watch(paths: Sequence[Path], show: Show, interval_seconds: float | None) -> None:
    while True:
        show(ask_top(paths))
        if interval_seconds is None:
            return
        time.sleep(interval_seconds)


def _show_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, separators=(",", ":")), flush=True)


def _show_plain(document: Mapping[str, Any]) -> None:
    print("\n".join(render(document, shutil.get_terminal_size(PLAIN_SIZE).columns)), flush=True)


def _show_screen(document: Mapping[str, Any]) -> None:
    size = shutil.get_terminal_size()
    lines = render(document, size.columns, size.lines - 1)
    # Erased before it is written: behind the last column of a full line that column itself would go.
    print(_HOME + "".join(f"{_ERASE_LINE}{line}\n" for line in lines) + _ERASE_BELOW, end="", flush=True)
