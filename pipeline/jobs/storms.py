"""The job `storms`: bursts of arrivals, who was in them, how long until everybody was served."""

import argparse
import math

from pipeline.errors import ExitCode, PipelineError
from pipeline.options import add_common, common_settings
from pipeline.periods import add_period, given_period
from pipeline.progress import at_work
from pipeline.storms import StormSettings, find_storms
from pipeline.transforms.storms import USUAL_RULE, BurstRule

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the job."""
    usual = USUAL_RULE
    add_common(parser)
    add_period(parser)
    parser.add_argument(
        "--times", type=float, default=usual.times, metavar="K",
        help="a second is stormy with K times the usual arrivals, the median of all seconds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--floor", type=int, default=usual.floor, metavar="N", help="and with at least N (default: %(default)s)"
    )
    parser.add_argument(
        "--gap", type=int, default=usual.gap_seconds, metavar="S",
        help="calmer seconds that a storm may have within it (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--top",
        type=int,
        default=10,
        metavar="N",
        help="names of each ranking in `storm_members` (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the job and say what it found; raises PipelineError."""
    common = common_settings(options)
    rule = BurstRule(options.times, options.floor, options.gap)
    settings = StormSettings(common, rule, options.top, given_period(options))
    if not 1 <= rule.times < math.inf or rule.floor < 1 or rule.gap_seconds < 0 or settings.top < 1:
        got = f"{rule.times:g}, {rule.floor}, {rule.gap_seconds} and {settings.top}"
        raise PipelineError(f"--times, --floor, --gap and --top: got {got}, expected numbers of at least 1, 1, 0 and 1")
    with at_work("storms", common) as spark:
        summary = find_storms(spark, settings)
    print(f"storms: {summary}")
    return ExitCode.OK
