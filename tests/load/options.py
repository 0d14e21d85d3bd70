"""The options that our scenarios add to Locust's own; each can be given as `LOAD_<NAME>` in the environment, too.

Rule: checked once; a wrong value ends Locust with exit code 2 before any connection is made.
"""

import argparse
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from locust import events

DEFAULT_URL: Final = "pulsar://127.0.0.1:6650"
DEFAULT_PORT: Final = 6650
_MOST: Final = 10**9
_DAY_SECONDS: Final = 86_400
# "@" cannot be part of a namespace's name.
_WRITTEN: Final = re.compile(r"(?P<name>[-=:.\w]+/[-=:.\w]+)(?:@(?P<weight>[1-9]\d{0,3}))?", re.ASCII)


class Share(NamedTuple):
    """A namespace and its weight among the others."""

    namespace: str
    weight: int = 1


def rota(shares: tuple[Share, ...]) -> Iterator[str]:
    """Give a namespace to one client after the other, for ever; any full turn holds each as often as its weight."""
    # Sorted by the place of each share's own steps, so that a light tenant does not wait behind a whole heavy one.
    steps = sorted(((step + 0.5) / share.weight, share.namespace) for share in shares for step in range(share.weight))
    return itertools.cycle([namespace for _, namespace in steps])


def parse_address(url: str) -> tuple[str, int]:
    """Read `pulsar://host[:port]`; raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "pulsar" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"--host: got {url!r}, expected pulsar://host:port")
    return parts.hostname, parts.port or DEFAULT_PORT


def _shares(text: str) -> tuple[Share, ...]:
    """Read `tenant/namespace[@weight],...`."""
    shares = []
    for part in text.split(","):
        written = _WRITTEN.fullmatch(part.strip())
        if written is None:
            expected = "tenant/namespace or tenant/namespace@weight (1 to 9999)"
            raise argparse.ArgumentTypeError(f"got {part.strip()!r}, expected {expected}")
        shares.append(Share(written["name"], int(written["weight"] or 1)))
    return tuple(shares)


def _between(read: Callable[[str], float], least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            found = read(text)
        except ValueError:
            found = least - 1
        if not least <= found <= most:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected a number, {least:g} to {most:g}")
        return found

    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("Pulsar scenarios")
    count, one_or_more = _between(int, 0, _MOST), _between(int, 1, _MOST)
    ratio, seconds = _between(float, 0, 1), _between(float, 0.001, _DAY_SECONDS)

    def option(name: str, default: object, read: Callable[[str], Any], text: str) -> None:
        # Locust's parser takes the name of an environment variable beside argparse's own arguments.
        more: dict[str, Any] = {"env_var": f"LOAD_{name.upper().replace('-', '_')}"}
        text = f"{text} (default: %(default)s)"
        group.add_argument(f"--{name}", type=read, default=default, metavar="X", help=text, **more)

    option("namespaces", "public/default", _shares, "tenant/namespace[@weight],...: what the clients ask for")
    option("topics", 0, count, "topics that each namespace must have; 0: any number")
    option("answer-seconds", 45.0, seconds, "a request without an answer for so long is lost")
    option("most-requests", 0, count, "end after so many requests; 0: after the time alone")
    option("gust-seconds", 3.0, seconds, "storm: all clients reconnect together, so often")
    option("drop-share", 0.1, ratio, "storm: part of the clients that leave before their answer")
    option("ramp-seconds", 3.0, seconds, "storm: a tenth of the clients comes in this time")
    option("hold-seconds", 8.0, seconds, "storm: all clients are there")
    option("calm-seconds", 3.0, seconds, "storm: a tenth of the clients remains")
    option("slow-bytes-per-second", 400_000, one_or_more, "slow readers: pace of each")
    option("slow-requests", 3, one_or_more, "slow readers: lists asked for at once by each")
    option("max-refusals", 0, count, "promise: TooManyRequests answers at most")
    option("max-failure-ratio", 0.0, ratio, "promise: other failures at most, as a part of all requests")
    option("max-ping-p99-ms", 500.0, seconds, "promise: 99 of 100 PINGs take at most so long")
    option("promises-file", "", str, "where to write the verdict as JSON; empty: nowhere")


events.init_command_line_parser.add_listener(add_options)
