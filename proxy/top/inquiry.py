"""The commands `pulsar-proxy config` and `pulsar-proxy log-level`: one question to a running proxy, and its answer.

Rule: as `top`: one clear line and exit code 1 when no proxy answers or it refuses, 2 for a wrong configuration.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from proxy.config import ConfigError
from proxy.top.ask import NoAnswer, Refused, ask
from proxy.top.command import BAD_CONFIG, FAILED, socket_paths


def show_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Print the configuration in force and give the exit code."""
    show = _print_json if options.json else _print_config
    return _ask(options, environ, {"show": "config"}, "config", show)


def change_log_level(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Change the log level if one is given, print how it stands, and give the exit code."""
    request = {"change": "log-level", "level": options.level, "seconds": options.seconds}
    if options.seconds is not None and options.level is None:
        print("error: --for: expected a level in front of it", file=sys.stderr)
        return BAD_CONFIG
    return _ask(options, environ, request, "log-level", _print_level)


def _ask(
    options: argparse.Namespace,
    environ: Mapping[str, str],
    request: Mapping[str, object],
    name: str,
    show: Callable[[Mapping[str, Any]], None],
) -> int:
    try:
        answer = ask(socket_paths(options, environ), request, name)
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return BAD_CONFIG
    except (NoAnswer, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    show(answer)
    return 0


def _print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, separators=(",", ":")))


def _print_config(document: Mapping[str, Any]) -> None:
    for name, entry in document["keys"].items():
        waits = f"; after a restart: {entry['pending_restart']}" if "pending_restart" in entry else ""
        print(f"{name}={entry['value']}  # {entry['source']}{waits}")


def _print_level(answer: Mapping[str, Any]) -> None:
    left = answer["seconds_left"]
    print(answer["level"] if left is None else f"{answer['level']} for {left:.0f} s, then {answer['configured']}")
