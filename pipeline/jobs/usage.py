"""The job `usage`: the table `events`, or a stream of it, into `usage`, `waits` and what follows from them."""

import argparse
from threading import Event
from typing import get_args

from pipeline.core.errors import ExitCode, PipelineError
from pipeline.core.marks import ADAPTIVE_MARKS, Marks
from pipeline.core.options import CommonSettings, add_common, common_settings
from pipeline.core.periods import ALWAYS, add_period, given_period, window_seconds
from pipeline.ingest.settings import LEAST_US, micros
from pipeline.running.progress import at_work
from pipeline.running.stopping import set_by_sigterm
from pipeline.usage.batch import make_usage
from pipeline.usage.settings import REFRESH_US, Engine, StreamSettings, UsageSettings
from pipeline.usage.stream import follow_usage


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
    add_engine(parser)
    parser.add_argument(
        "--stream", action="store_true", help="add to the tables what has come into `events` since the last time"
    )
    parser.add_argument(
        "--trigger", metavar="TIME", help="with --stream: go on taking what comes, so often: 10s, 1m; until SIGTERM"
    )
    parser.add_argument("--checkpoint", metavar="DIR", help="of --stream (default: _checkpoints/usage in --out)")
    parser.add_argument(
        "--refresh", metavar="TIME",
        help="with --trigger: at most so often `sharing`, `top_costs` and `slowed` are made anew (default: 15m)",
    )  # fmt: skip


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare who sums."""
    parser.add_argument(
        "--engine", choices=get_args(Engine), default="auto",
        help="what adds up events (default: duckdb if tables are Parquet on a mounted directory and the master is"
        " local[N], else spark)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError. SIGTERM ends a stream after its batch."""
    common = common_settings(options)
    settings = UsageSettings(
        common, window_seconds("--window", options.window), options.top, given_period(options),
        Marks(options.overload_high, options.overload_low), options.engine,
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
    refresh_us = REFRESH_US if options.refresh is None else micros("--refresh", options.refresh, LEAST_US)
    checkpoint = options.checkpoint or f"{common.out}/_checkpoints/usage"
    return StreamSettings(checkpoint, trigger_us, refresh_us=refresh_us)


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
    if options.trigger is None and options.refresh is not None:
        raise PipelineError("--refresh: got no --trigger, expected one: without it they are made at the end")
    if options.stream and settings.period != ALWAYS:
        raise PipelineError(
            "--since, --until and --cluster: got --stream, which takes every event once; expected none of them"
        )
