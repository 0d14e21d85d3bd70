"""The command line: `serve`, `top`, `admin`, `config`, `log-level`, `health`, `completion`, `demo`, `check-config`,
`print-config`, `recover-events`. Exit code 2 means a wrong configuration or wrong arguments.
"""

import argparse
import asyncio
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from proxy.config.config import Config, ConfigError
from proxy.core.secrets import masked
from proxy.core.version import VERSION

BAD_CONFIG = 2
FAILED = 1
# Commands whose exit code is a verdict on the proxy or its configuration.
_VERDICTS = ("check-config", "health", "recover-events")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; a closed pipe (`| head`) ends the command quietly."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return _run(given)
    except BrokenPipeError as gone:
        # A fault or a verdict that nobody has read must not count as success.
        faulty = isinstance(gone.__context__, Exception) or given[0] in _VERDICTS
        return FAILED if faulty else 0
    finally:
        _drop_the_unread()


def _run(given: list[str]) -> int:
    if given[:1] == ["--version"]:
        from proxy.cli.installation import shared_names, versions

        for line in shared_names():
            print(f"warning: {line}", file=sys.stderr)
        print(versions())
        # As argparse ends after its own answer.
        raise SystemExit(0)
    options = _parser_for(given).parse_args(given)
    try:
        return _loaded(options.run)(options, os.environ)
    except ConfigError as error:
        return _report(error)


def _loaded(run: "str | Run") -> "Run":
    if not isinstance(run, str):
        return run
    module, _, name = run.partition(":")
    function: Run = getattr(importlib.import_module(module), name)
    return function


def _drop_the_unread() -> None:
    """Flush the output, or discard it if its pipe is closed: otherwise the interpreter exits with code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            # A stream is None if it was closed when the process started.
            if stream is not None:
                stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands with all options; needs the standard library alone, as a build of the wheel
    generates manual pages and completion scripts from it.
    """
    return _parser_of(_COMMANDS)


def _parser_for(given: Sequence[str]) -> argparse.ArgumentParser:
    # The parsers of all commands together cost a fiftieth of the time that `serve` takes to start.
    return _parser_of(given[:1] if given[:1] and given[0] in _COMMANDS else _COMMANDS)


def _parser_of(names: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pulsar-proxy", description="a memory-bounded proxy for Apache Pulsar")
    parser.add_argument("--version", action="version", version=f"pulsar-proxy {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in names:
        command = _COMMANDS[name]
        own = commands.add_parser(name, help=command.help, description=command.help)
        own.set_defaults(run=command.run)
        command.add_options(own)
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_sources(parser)
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="take the listening sockets over from the proxy that runs with the same control socket, if one does, and "
        "have it drain; no client is refused meanwhile",
    )


def _add_check_config(parser: argparse.ArgumentParser) -> None:
    _add_sources(parser)
    parser.add_argument("--strict", action="store_true", help="refuse keys that no proxy knows, such as misspelt keys")
    parser.add_argument(
        "--connect",
        action="store_true",
        help="try each broker: its name, port, TLS and the proxy's credentials; exit with code 1 if one fails",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON document")


def _add_print_config(parser: argparse.ArgumentParser) -> None:
    _add_sources(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="path of proxy.conf; the environment overrides it")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key; repeat the option for more keys",
    )
    parser.add_argument(
        "--without-extension",
        action="store_true",
        help="do without the native extension: plain ports alone, no limits and throttles of relays; keys that ask for "
        "more are refused",
    )


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.description = "run an embedded broker, the proxy and a storm of clients on 127.0.0.1"

    def number(name: str, default: int, text: str) -> None:
        parser.add_argument(name, type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")

    number("--connections", 300, "number of clients")
    number("--requests", 4, "topic lists that each client requests at once")
    number("--topics", 10_000, "topics in each namespace")
    number("--name-bytes", 100, "bytes of each topic's name")
    number("--namespaces", 0, "number of namespaces; 0 gives each client a namespace of its own")
    number("--heap-mb", 32, "maxTopicListInFlightHeapMemSizeMB of the proxy")
    number("--direct-mb", 32, "maxTopicListInFlightDirectMemSizeMB of the proxy")
    parser.add_argument(
        "--slow-share", type=float, default=0.2, metavar="0..1",
        help="share of slow clients: they start to read late, with a receive buffer of 4 KiB (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--late-seconds", type=float, default=3.0, metavar="S",
        help="seconds until the slow clients start to read (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--event-log",
        metavar="DIR",
        help="directory for the proxy's event log (eventLogDirectory), for the pipeline",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key of the proxy; repeat the option for more; with servicePortTls the clients speak TLS",
    )
    parser.add_argument(
        "--accept-refusals", action="store_true",
        help="do not count refusals as failures: for limits that are too small on purpose",
    )  # fmt: skip
    parser.add_argument(
        "--overload", action="store_true",
        help="a storm of producers instead, which the threshold throttle holds and releases (--connections of them)",
    )  # fmt: skip
    parser.add_argument(
        "--overload-seconds", type=float, default=26.0, metavar="S",
        help="seconds that the producers send (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--broker-only", action="store_true", help="run broker and proxy without a storm, until Ctrl-C")


def _add_admin(parser: argparse.ArgumentParser) -> None:
    from proxy.cli.admin.arguments import add_admin

    add_admin(parser, _duration)


def _add_top(parser: argparse.ArgumentParser) -> None:
    from proxy.cli.admin.arguments import add_where

    add_where(parser)
    parser.add_argument("--plain", action="store_true", help="redraw plain text, without tabs and keys")
    parser.add_argument("--once", action="store_true", help="show one update and exit")
    parser.add_argument("--json", action="store_true", help="print one JSON document per line instead of a screen")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="S", help="seconds between updates (default 1)"
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    from proxy.cli.admin.arguments import add_where

    add_where(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def _add_log_level(parser: argparse.ArgumentParser) -> None:
    from proxy.cli.admin.arguments import add_level, add_where

    add_where(parser)
    add_level(parser, _duration)


def _add_health(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="proxy.conf that names the ports; the environment overrides it"
    )
    parser.add_argument(
        "--timeout", type=_probe, default=3.0, metavar="S", help="seconds to wait for an answer (default 3)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a line")


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), help="shell to print the script for")


def _add_recover_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="event file, *.jsonl.gz; it stays as it is")


def _duration(text: str) -> float:
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        return _number(str(float(text[:-1]) * unit), 86_400) if unit else _number(text, 86_400)
    except ValueError:
        return _number(text, 86_400)


def _seconds(text: str) -> float:
    return _number(text, 3600)


def _probe(text: str) -> float:
    return _number(text, 60)


def _number(text: str, most: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= most:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected seconds from 0.1 to {most}")
    return seconds


def _load(options: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    settings = _overrides(options.set)
    return Config.load(options.config, environ, settings, without_extension=options.without_extension)


def _overrides(settings: Sequence[str]) -> Mapping[str, str]:
    overrides = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            print(f"error: --set: got {masked(setting)!r}, expected KEY=VALUE", file=sys.stderr)
            raise SystemExit(BAD_CONFIG)
        if key.strip() in overrides:
            print(f"warning: --set: {masked(key.strip())} is given more than once; the last counts", file=sys.stderr)
        overrides[key.strip()] = value.strip()
    return overrides


def _report(error: ConfigError, *, strict: bool = False) -> int:
    for warning in error.warnings:
        print(f"{'error' if strict and warning.unknown else 'warning'}: {warning}", file=sys.stderr)
    for problem in error.problems:
        print(f"error: {problem}", file=sys.stderr)
    return BAD_CONFIG


def _refuse(foreign: Sequence[str]) -> int:
    print(*(f"error: {line}" for line in foreign), sep="\n", file=sys.stderr)
    return FAILED


def _serve(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    config = _load(options, environ)
    from proxy.cli.installation import misplaced

    # Check before the other packages are imported: a foreign package of the same name would end in a traceback.
    if foreign := misplaced():
        return _refuse(foreign)
    # Objects made at the start stay, so a collector would visit them 140 times for nothing; `run` turns it on.
    gc.disable()
    import uvloop

    from proxy.auth.failures import SettingFault
    from proxy.cli.inherited import TakeOverFailed, inherited_of
    from proxy.cli.serve import ignore_hangup, run
    from proxy.cli.systemd import manager_of_this_process
    from proxy.core.log import adopt_stdlib_logging, open_log
    from proxy.core.threads import EVENT_LOG, leave

    ignore_hangup()
    log = open_log(config.log_level, config.log_format)
    adopt_stdlib_logging(log)
    for warning in config.warnings:
        log.warning("configuration", detail=str(warning))
    try:
        inherited = inherited_of(config, os.environ, log, take_over=options.take_over)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            code = runner.run(run(config, log, lambda: _load(options, environ), manager_of_this_process(), inherited))
    except TakeOverFailed as error:
        log.error("cannot take over", detail=str(error))
        return FAILED
    except OSError as error:
        log.error("cannot start", detail=error.strerror or str(error))
        return FAILED
    except SettingFault as fault:
        log.error("cannot start", key=fault.key, detail=fault.problem)
        return BAD_CONFIG
    leave(code, EVENT_LOG)
    return code


def _check_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from proxy.cli.installation import misplaced

    sources = (options.config, environ, _overrides(options.set))
    try:
        config = Config.load(*sources, without_extension=options.without_extension)
    except ConfigError as error:
        if misplaced():
            # The look at files needs packages that are not ours here.
            return _report(error, strict=options.strict)
        from proxy.cli.check import refused

        rest = Config.load_what_is_right(*sources, without_extension=options.without_extension)
        return refused(error, rest, options)
    if foreign := misplaced():
        return _refuse(foreign)
    from proxy.cli.check import run_check

    return run_check(config, options)


def _print_config(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    config = _load(options, environ)
    if options.json:
        import json

        values = {key.name: {"value": value, "source": origin} for key, value, origin in config.items()}
        print(json.dumps({"config": values}))
        return 0
    for key, value, origin in config.items():
        print(f"{key.name}={value}  # {origin}")
    return 0


Run = Callable[[argparse.Namespace, Mapping[str, str]], int]


class Command(NamedTuple):
    """A command: its help text, what adds its options, and what runs it with the environment.

    A function of another module is a text, `module:function`: its module is imported when it runs.
    """

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: str | Run


# In the order of `--help`.
_COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command("run the proxy", _add_serve, _serve),
    "check-config": Command("check a configuration, report every error, and exit", _add_check_config, _check_config),
    "print-config": Command(
        "print each key with its value and the source of the value", _add_print_config, _print_config
    ),
    "top": Command(
        "show limiters, queues, top namespaces and refusals of a running proxy",
        _add_top, "proxy.cli.top.command:run_top",
    ),
    "admin": Command(
        "inspect and control a running proxy: connections, limiters, queue, groups, reload, drain",
        _add_admin, "proxy.cli.admin.command:run_admin",
    ),
    "config": Command(
        "show the configuration in force in a running proxy, and the source of each value",
        _add_config, "proxy.cli.admin.command:show_config",
    ),
    "log-level": Command(
        "show or change the log level of a running proxy", _add_log_level, "proxy.cli.admin.command:change_log_level"
    ),
    "health": Command(
        "exit with code 0 if the proxy of this configuration is ready; for container probes",
        _add_health, "proxy.cli.health:run_health",
    ),
    "recover-events": Command(
        "copy what is sound of damaged files of the event log, each into a file beside it",
        _add_recover_events, "proxy.cli.recover_events:recover_events",
    ),
    "completion": Command(
        "print the completion script of a shell, to evaluate or to save where the shell looks for it",
        _add_completion, "proxy.cli.completions:print_script",
    ),
    "demo": Command(
        "run an embedded broker, the proxy and a storm of clients", _add_demo, "proxy.cli.demo.run:run_demo"
    ),
}  # fmt: skip
