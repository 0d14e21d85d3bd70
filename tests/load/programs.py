"""The programs of a load test as child processes: the demo with its proxy, and Locust.

Rule: whatever happens, a child is ended by its own id, asked first and then forced; the demo ends its own children.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
# The demo gives its own children 8 s each.
END_SECONDS: Final = 25.0
FAILED: Final = 1
ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
DEMO_NAMESPACES: Final = 8
DEMO_TOPICS: Final = 5000
DEMO_MB: Final = 16
_ENVIRONMENT_PREFIX: Final = "PULSAR_PREFIX_"
_PROXY_LINE: Final = re.compile(r"proxy\s+(pulsar://\S+)")


class DidNotStart(Exception):
    """Report a demo that ended, or said nothing of a proxy; the message holds what it said."""


class Target(NamedTuple):
    """Where the load goes, and what is to be found there."""

    url: str
    namespaces: str
    topics: int


@contextmanager
def demo(settings: Sequence[str]) -> Iterator[Target]:
    """Run the embedded broker and a proxy, with `settings` (KEY=VALUE) of the proxy, until the block ends."""
    sizes = {"namespaces": DEMO_NAMESPACES, "topics": DEMO_TOPICS, "heap-mb": DEMO_MB, "direct-mb": DEMO_MB}
    command = ["proxy", "demo", "--broker-only", *(f"--{name}={value}" for name, value in sizes.items())]
    overrides = dict(setting.split("=", 1) for setting in settings)
    environment = {_ENVIRONMENT_PREFIX + key: value for key, value in overrides.items()}
    with _child(command, environment, output=subprocess.PIPE) as process:
        yield Target(
            _announced(process), ",".join(f"demo/ns-{number}" for number in range(DEMO_NAMESPACES)), DEMO_TOPICS
        )


def run_locust(arguments: Sequence[str], seconds: float) -> int:
    """Run Locust and give its exit code; 1 if a signal ended it, or it did not end within `seconds`."""
    with _child(["locust", *arguments], {}, output=None) as process:
        try:
            code = process.wait(seconds)
            return code if code >= 0 else FAILED
        except subprocess.TimeoutExpired:
            print(f"load test: locust did not end within {seconds:g} s", file=sys.stderr)
            return FAILED


@contextmanager
def _child(
    command: Sequence[str], environment: dict[str, str], output: int | None
) -> Iterator["subprocess.Popen[str]"]:
    told: list[int] = []
    # A signal while a child comes to life would leave it without anybody who ends it.
    handlers = {number: signal.signal(number, lambda number, _: told.append(number)) for number in ENDING_SIGNALS}
    with subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        # A Ctrl-C reaches the launcher alone, which then ends its children in order.
        process_group=0,
    ) as process:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for came in told:
                signal.raise_signal(came)
            yield process
        finally:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _announced(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := _PROXY_LINE.match(line):
            return found[1]
    raise DidNotStart(f"the demo did not start: {''.join(said).strip() or 'it said nothing'}")
