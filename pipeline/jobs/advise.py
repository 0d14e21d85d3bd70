"""Choose the smallest limits that hold a target, as a fragment of proxy.conf."""

import argparse

from pipeline.advise import AdviseSettings, advise
from pipeline.choice import Target
from pipeline.errors import ExitCode
from pipeline.options import add_common, add_promise, common_settings
from pipeline.progress import at_work

__all__ = ["add_arguments", "add_target", "run", "settings_of"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common(parser)
    add_target(parser)
    parser.add_argument("--load", type=int, default=10, metavar="N", help="of the target (default: %(default)s)")


def add_target(parser: argparse.ArgumentParser) -> None:
    """Declare what must be held; the load is another option, since `whatif` has a list of loads."""
    parser.add_argument(
        "--max-refused", type=float, default=0.0, metavar="SHARE", help="of all requests (default: %(default)s)"
    )
    add_promise(parser)
    parser.add_argument(
        "--headroom", type=float, default=0.25, metavar="SHARE", help="on top of what holds (default: %(default)s)"
    )
    parser.add_argument(
        "--max-error", type=float, default=0.2, metavar="E", help="of the calibration (default: %(default)s)"
    )
    parser.add_argument(
        "--max-imputed",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of requests with sizes or times of others (default: %(default)s)",
    )
    parser.add_argument(
        "--min-requests", type=int, default=100, metavar="N",
        help="that the calibration must have compared (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--conf-file", metavar="FILE", help="for the fragment of proxy.conf (default: advice.conf in --out)"
    )


def settings_of(options: argparse.Namespace, load: int) -> AdviseSettings:
    """Read the settings; raises PipelineError."""
    target = Target(load, options.max_refused, options.p99_wait_ms * 1000)
    return AdviseSettings(
        common_settings(options),
        target,
        options.headroom,
        options.max_error,
        options.conf_file,
        options.max_imputed,
        options.min_requests,
    )


def run(options: argparse.Namespace) -> int:
    """Run the job; raises PipelineError."""
    settings = settings_of(options, options.load)
    with at_work("advise", settings.common) as spark:
        advise(spark, settings)
    return ExitCode.OK
