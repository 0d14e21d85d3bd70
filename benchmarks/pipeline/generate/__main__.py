"""The command line: `python -m benchmarks.pipeline.generate`: the table `events`, or the files that a proxy writes."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from benchmarks.pipeline.generate.output import events_frame, write_files
from benchmarks.pipeline.generate.settings import GenerateSettings
from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.model import Limits
from pipeline.core.options import add_common, common_settings
from pipeline.core.tables.events import EVENTS
from pipeline.running.session import at_work
from pipeline.store.tables import write_table

__all__ = ["main"]

_NUMBERS = {
    "seed": "the same seed and options give the same events",
    "proxies": "of the fleet",
    "clients": "connections of the fleet, spread over the proxies",
    "tenants": "by Zipf's law, as namespaces",
    "namespaces": "by Zipf's law",
    "rate": "events a second of the fleet, on average",
    "zipf": "exponent of that law: 0 makes all equal",
    "storm-share": "part of the events that comes in reconnect storms",
    "watch-share": "part that is watch frames",
}


def main(words: Sequence[str] | None = None) -> int:
    """Write the events; gives an exit code as the jobs of the pipeline do."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline.generate", description=__doc__)
    _add_arguments(parser)
    try:
        return _run(parser.parse_args(words))
    except PipelineError as error:
        print(f"generate: {error}", file=sys.stderr)
        return error.code


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.add_argument("--events", type=_whole, required=True, metavar="N", help="how many, such as 1e6")
    usual = {field.name: field.default for field in fields(GenerateSettings)}
    for name, text in _NUMBERS.items():
        default = usual[name.replace("-", "_")]
        parser.add_argument(
            f"--{name}", type=type(default), default=default, metavar="N", help=f"{text} (default: %(default)s)"
        )
    parser.add_argument(
        "--as", choices=("table", "files"), default="table", dest="kind",
        help="the table `events`, or compressed JSON lines for `ingest` (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--simulate", action=argparse.BooleanOptionalAction, default=True,
        help="have the limiter's rules say who waits; requests share no answers then. Waits that are drawn instead"
        " follow from no limits, so that no advice can be given for them",
    )  # fmt: skip


def _run(options: argparse.Namespace) -> int:
    common = common_settings(options)
    names = [name.replace("-", "_") for name in _NUMBERS]
    settings = GenerateSettings(
        options.events,
        simulate=options.simulate,
        limits=Limits(coalescing=not options.simulate),
        **{name: getattr(options, name) for name in names},
    )
    if options.kind == "table":
        with at_work("generate", common) as spark:
            write_table(common, EVENTS, events_frame(spark, settings))
        written = settings.events
    elif "://" in common.out:
        raise PipelineError(f"--out: got {common.out}, expected a local directory for files")
    else:
        written = write_files(settings, Path(common.out), lambda n: print(f"generate: {n:,} events", flush=True))
    print(f"generate: {written:,} events in {common.out}")
    return ExitCode.OK


def _whole(word: str) -> int:
    try:
        number = float(word)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"got {word!r}, expected a whole number such as 1000 or 1e6")


if __name__ == "__main__":
    sys.exit(main())
