"""The job `usage`: who costs how much, how long they waited, what sharing answers saved, and who was slowed."""

import argparse
from threading import Event

from pipeline.errors import ExitCode, PipelineError
from pipeline.ingest.settings import LEAST_US, micros
from pipeline.options import CommonSettings, add_common, common_settings
from pipeline.periods import ALWAYS, add_period, given_period, window_seconds
from pipeline.progress import at_work
from pipeline.slowed.marks import ADAPTIVE_MARKS, Marks
from pipeline.stopping import set_by_sigterm
from pipeline.usage import StreamSettings, UsageSettings, follow_usage, make_usage

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    add_common(parser)
    add_period(parser)
    parser.add_argument("--window", default="1m", metavar="TIME", help="length of a window (default: %(default)s)")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="names of each ranking in `top_costs` (default: %(default)s)"
    )
    for name, default in zip(Marks._fields, ADAPTIVE_MARKS, strict=True):
        parser.add_argument(
            f"--overload-{name}", type=float, default=default, metavar="V",
            help=f"adaptivePublisherThrottlingMemory{name.capitalize()}WatermarkPct of the proxies, which tells"
            " the reasons in `slowed` apart (default: %(default)s)",
        )  # fmt: skip
    parser.add_argument(
        "--stream", action="store_true", help="add to the tables what has come into `events` since the last time"
    )
    parser.add_argument(
        "--trigger", metavar="TIME", help="with --stream: go on taking what comes, so often: 10s, 1m; until SIGTERM"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="of --stream (default: _checkpoints/usage in --out)")


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError. SIGTERM ends a stream after its batch."""
    common = common_settings(options)
    settings = UsageSettings(
        common, window_seconds("--window", options.window), options.top, given_period(options),
        Marks(options.overload_high, options.overload_low),
    )  # fmt: skip
    _require_sense(options, settings)
    stream = _stream_settings(options, common)
    stop = Event() if stream is None else set_by_sigterm()
    with at_work("usage", common, quiet=stream is not None) as spark:
        if stream is None:
            summary = make_usage(spark, settings)
        else:
            summary = follow_usage(spark, settings, stream, lambda text: print(f"usage: {text}", flush=True), stop)
    print(f"usage: {summary}")
    return ExitCode.OK


def _stream_settings(options: argparse.Namespace, common: CommonSettings) -> StreamSettings | None:
    """Take what a stream is told, None for a batch; raises PipelineError for a trigger that is no time."""
    if not options.stream:
        return None
    trigger_us = None if options.trigger is None else micros("--trigger", options.trigger, LEAST_US)
    return StreamSettings(options.checkpoint or f"{common.out}/_checkpoints/usage", trigger_us)


def _require_sense(options: argparse.Namespace, settings: UsageSettings) -> None:
    if settings.top < 1:
        raise PipelineError(f"--top: got {settings.top}, expected at least 1")
    if not 0 <= settings.marks.low < settings.marks.high <= 1:
        raise PipelineError(
            f"--overload-low, --overload-high: got {settings.marks.low:g} and {settings.marks.high:g}, expected"
            " fractions, the first below the second"
        )
    if not options.stream and (options.trigger is not None or options.checkpoint):
        raise PipelineError("--trigger and --checkpoint: got no --stream, which they are for")
    if options.stream and settings.period != ALWAYS:
        raise PipelineError(
            "--since, --until and --cluster: got --stream, which takes every event once; expected none of them"
        )
