"""The command line: `serve`, `top`, `demo`, `check-config`, `print-config`. Exit code 2 stands for a configuration that
is wrong.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence

from proxy.config import Config, ConfigError
from proxy.version import VERSION

BAD_CONFIG = 2
FAILED = 1
TOP_HELP = "show limiters, queues, top namespaces and refusals of a running proxy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(with_demo=given[:1] == ["demo"]).parse_args(given)
    code: int = options.run(options)
    return code


def _parser(*, with_demo: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pulsar-proxy", description="a memory-bounded proxy for Apache Pulsar")
    parser.add_argument("--version", action="version", version=f"pulsar-proxy {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("serve", _serve, "run the proxy"),
        ("check-config", _check_config, "report every error of a configuration, and end"),
        ("print-config", _print_config, "print each key with its value and where it came from"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--config", metavar="FILE", help="proxy.conf (the environment overrides it)")
        command.add_argument(
            "--set",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="override one key; may be repeated",
        )
        command.set_defaults(run=run)
    _add_top(commands.add_parser("top", help=TOP_HELP, description=TOP_HELP))
    demo = commands.add_parser("demo", help="run an embedded broker, the proxy and a storm of clients")
    if with_demo:
        _add_demo_arguments(demo)
    demo.set_defaults(run=_demo)
    return parser


def _add_top(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", metavar="PATH", help="control socket of the proxy")
    where.add_argument("--config", metavar="FILE", help="its proxy.conf: where the socket is (with the environment)")
    parser.add_argument("--once", action="store_true", help="show once and end")
    parser.add_argument("--json", action="store_true", help="one JSON document a line instead of a screen")
    parser.add_argument("--interval", type=_seconds, default=1.0, metavar="S", help="seconds between looks (default 1)")
    parser.set_defaults(run=_top)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected seconds from 0.1 to 3600")
    return seconds


def _load(options: argparse.Namespace) -> Config:
    return Config.load(options.config, os.environ, _overrides(options.set))


def _overrides(settings: Sequence[str]) -> Mapping[str, str]:
    overrides = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            print(f"error: --set: got {setting!r}, expected KEY=VALUE", file=sys.stderr)
            raise SystemExit(BAD_CONFIG)
        overrides[key.strip()] = value.strip()
    return overrides


def _report(error: ConfigError) -> int:
    for warning in error.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for problem in error.problems:
        print(f"error: {problem}", file=sys.stderr)
    return BAD_CONFIG


def _serve(options: argparse.Namespace) -> int:
    try:
        config = _load(options)
    except ConfigError as error:
        return _report(error)
    import uvloop

    from proxy.auth.failures import SettingFault
    from proxy.log import adopt_stdlib_logging, open_log
    from proxy.serve import ignore_hangup, run

    ignore_hangup()
    log = open_log(config.log_level, config.log_format)
    adopt_stdlib_logging(log)
    for warning in config.warnings:
        log.warning("configuration", detail=str(warning))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(config, log, lambda: _load(options)))
    except ConfigError as error:
        return _report(error)
    except OSError as error:
        log.error("cannot start", detail=error.strerror or str(error))
        return FAILED
    except SettingFault as fault:
        log.error("cannot start", key=fault.key, detail=fault.problem)
        return BAD_CONFIG
    return 0


def _check_config(options: argparse.Namespace) -> int:
    from proxy.tls.files import check

    try:
        config = _load(options)
        expired = check(config)
    except ConfigError as error:
        return _report(error)
    for warning in (*config.warnings, *expired):
        print(f"warning: {warning}", file=sys.stderr)
    print("configuration is valid")
    return 0


def _print_config(options: argparse.Namespace) -> int:
    try:
        config = _load(options)
    except ConfigError as error:
        return _report(error)
    for key, value, origin in config.items():
        print(f"{key.name}={value}  # {origin}")
    return 0


def _top(options: argparse.Namespace) -> int:
    from proxy.top.command import run_top

    return run_top(options, os.environ)


def _add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    # Imported for this command only: `serve` must not pay for it at its start.
    from proxy.demo.run import add_arguments

    add_arguments(parser)


def _demo(options: argparse.Namespace) -> int:
    from proxy.demo.run import run_demo

    return run_demo(options)
