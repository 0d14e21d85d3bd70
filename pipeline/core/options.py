"""The options that all jobs share, and what they mean: where tables are, on which cluster.

And the one that all jobs share that speak of a target: the wait that is promised.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.core.calibration import PROMISED_MS
from pipeline.core.errors import PipelineError


@dataclass(frozen=True, slots=True)
class CommonSettings:
    """Where the tables are; `master` is None where spark-submit says it, `conf` goes to Spark as it is."""

    out: str
    master: str | None
    conf: Mapping[str, str]


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare `--out`, `--master` and `--conf`."""
    parser.add_argument("--out", required=True, metavar="DIR", help="directory or URI of the tables")
    parser.add_argument("--master", metavar="M", help="of Spark; default: what spark-submit says, else local[*]")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="K=V", help="setting of Spark; may be given several times"
    )


def add_promise(parser: argparse.ArgumentParser) -> None:
    """Declare `--p99-wait-ms`."""
    parser.add_argument(
        "--p99-wait-ms",
        type=float,
        default=PROMISED_MS,
        metavar="MS",
        help="longest wait of 99 %% that is promised; errors of waits are weighed by it (default: %(default)g)",
    )


def add_number(parser: argparse.ArgumentParser, option: str, default: float, metavar: str, text: str) -> None:
    """Declare an option for a number, of the type of its default; the help says the default."""
    parser.add_argument(
        option, type=type(default), default=default, metavar=metavar, help=f"{text} (default: %(default)s)"
    )


def common_settings(options: argparse.Namespace) -> CommonSettings:
    """Take the shared options out; raises PipelineError for a setting that is none."""
    out = options.out.rstrip("/") or "/"
    return CommonSettings(out, options.master, key_values("--conf", options.conf))


def key_values(option: str, given: Iterable[str]) -> dict[str, str]:
    """Read `K=V` words; raises PipelineError."""
    found = {}
    for word in given:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise PipelineError(f"{option}: got {word!r}, expected NAME=VALUE")
        found[key] = value
    return found
