"""The options that our scenarios add to Locust's own; each can be given as `LOAD_<NAME>` in the environment, too.

Rule: read once, checked once; a wrong value ends Locust with exit code 2 before any connection is made.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from locust import events

from tests.load.books import Promises
from tests.load.namespaces import Share, parse_shares
from tests.load.plan import StormPlan

DEFAULT_URL: Final = "pulsar://127.0.0.1:6650"
DEFAULT_PORT: Final = 6650


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a scenario needs to know."""

    address: tuple[str, int]
    shares: tuple[Share, ...]
    topics: int
    answer_seconds: float
    most_requests: int
    gust_seconds: float
    drop_share: float
    storm: StormPlan
    slow_bytes_per_second: int
    slow_requests: int
    promises: Promises
    promises_file: str

    @classmethod
    def of(cls, given: argparse.Namespace) -> "LoadOptions":
        """Read what the command line gave; raises ValueError naming the option."""
        return cls(
            address=parse_address(given.host or DEFAULT_URL),
            shares=given.namespaces,
            topics=given.topics,
            answer_seconds=given.answer_seconds,
            most_requests=given.most_requests,
            gust_seconds=given.gust_seconds,
            drop_share=given.drop_share,
            storm=StormPlan(given.num_users or 1, given.ramp_seconds, given.hold_seconds, given.calm_seconds),
            slow_bytes_per_second=given.slow_bytes_per_second,
            slow_requests=given.slow_requests,
            promises=Promises(given.max_refusals, given.max_failure_ratio, given.max_ping_p99_ms),
            promises_file=given.promises_file,
        )


def parse_address(url: str) -> tuple[str, int]:
    """Read `pulsar://host[:port]`; raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "pulsar" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"--host: got {url!r}, expected pulsar://host:port")
    return parts.hostname, parts.port or DEFAULT_PORT


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("Pulsar scenarios")

    def option(name: str, default: object, read: Callable[[str], Any], text: str) -> None:
        # Locust's parser takes the name of an environment variable beside argparse's own arguments.
        more: dict[str, Any] = {"env_var": f"LOAD_{name.upper().replace('-', '_')}"}
        text = f"{text} (default: %(default)s)"
        group.add_argument(f"--{name}", type=read, default=default, metavar="X", help=text, **more)

    option("namespaces", "public/default", _shares, "tenant/namespace[@weight],...: what the clients ask for")
    option("topics", 0, _count, "topics that each namespace must have; 0: any number")
    option("answer-seconds", 45.0, _positive, "a request without an answer for so long is lost")
    option("most-requests", 0, _count, "end after so many requests; 0: after the time alone")
    option("gust-seconds", 3.0, _positive, "storm: all clients reconnect together, so often")
    option("drop-share", 0.1, _ratio, "storm: part of the clients that leave before their answer")
    option("ramp-seconds", 3.0, _positive, "storm: a tenth of the clients comes in this time")
    option("hold-seconds", 8.0, _positive, "storm: all clients are there")
    option("calm-seconds", 3.0, _positive, "storm: a tenth of the clients remains")
    option("slow-bytes-per-second", 400_000, _at_least_one, "slow readers: pace of each")
    option("slow-requests", 3, _at_least_one, "slow readers: lists asked for at once by each")
    option("max-refusals", 0, _count, "promise: TooManyRequests answers at most")
    option("max-failure-ratio", 0.0, _ratio, "promise: other failures at most, as a part of all requests")
    option("max-ping-p99-ms", 500.0, _positive, "promise: 99 of 100 PINGs take at most so long")
    option("promises-file", "", str, "where to write the verdict as JSON; empty: nowhere")


def _shares(text: str) -> tuple[Share, ...]:
    try:
        return parse_shares(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    return _whole(text, 0)


def _at_least_one(text: str) -> int:
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a whole number, {least} or more")
    return int(text)


def _ratio(text: str) -> float:
    return _number(text, 0.0, 1.0, "0 to 1")


def _positive(text: str) -> float:
    return _number(text, 0.001, 86_400.0, "a number above 0, a day's seconds at most")


def _number(text: str, least: float, most: float, expected: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected}")
    return number


events.init_command_line_parser.add_listener(add_options)
