"""The state of one load test in this process, and its verdict when Locust ends: exit code 1 for a broken promise.

Rule: one process; figures spread over Locust's workers would let each keep promises that all together break.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from locust import events, log
from locust.env import Environment

from tests.load.books import Books, Latency, Promises
from tests.load.options import DEFAULT_URL, parse_address, rota

REQUEST_TYPE: Final = "pulsar"
PING: Final = "PING"
BAD_OPTIONS: Final = 2
_LAG_STEP_SECONDS: Final = 0.01


@dataclass(slots=True)
class LagMeter:
    """Measure how late this process is when it wants to run: whole milliseconds and how often."""

    late_ms: Counter[int] = field(default_factory=Counter)

    def run(self) -> None:
        """Measure until killed."""
        while True:
            began = time.perf_counter()
            time.sleep(_LAG_STEP_SECONDS)
            self.late_ms[round((time.perf_counter() - began - _LAG_STEP_SECONDS) * 1000)] += 1

    def p99_ms(self) -> float:
        """Give the lag that 99 of 100 measurements stay within; 0 before the first."""
        passed = 0
        for late_ms, count in sorted(self.late_ms.items()):
            passed += count
            if passed >= 0.99 * self.late_ms.total():
                return float(late_ms)
        return 0.0


class LoadTest:
    """One scenario under way: what was given to it, its books and who asks what; raises ValueError."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.address = parse_address(given.host or DEFAULT_URL)
        self.books = Books()
        self.lag = LagMeter()
        self.namespaces = rota(given.namespaces)

    @property
    def enough(self) -> bool:
        """Tell whether as many requests were made as were wished for."""
        return 0 < int(self.given.most_requests) <= self.books.asked


_running: dict[Environment, LoadTest] = {}


def load_test(environment: Environment) -> LoadTest:
    """Give the load test that a Locust environment runs."""
    return _running[environment]


def _begin(environment: Environment, **_: object) -> None:
    given = environment.parsed_options
    assert given is not None
    if given.master or given.worker:
        _refuse("--processes, --master, --worker: got a distributed run, expected one process")
    try:
        test = LoadTest(given)
    except ValueError as error:
        _refuse(str(error))
    _running[environment] = test
    # A thread that Locust has made a greenlet: it is as late as every user is.
    threading.Thread(target=test.lag.run, daemon=True).start()


def _refuse(text: str) -> None:
    print(f"load test: {text}", file=sys.stderr)
    raise SystemExit(BAD_OPTIONS)


def _judge(environment: Environment, **_: object) -> None:
    test = load_test(environment)
    assert environment.runner is not None
    crashes = len(environment.runner.exceptions) + int(log.unhandled_greenlet_exception)
    given = test.given
    promises = Promises(given.max_refusals, given.max_failure_ratio, given.max_ping_p99_ms)
    report = promises.report(test.books, _latency(environment, test.lag), crashes)
    environment.process_exit_code = 0 if report["kept"] else 1
    if given.promises_file:
        path = Path(given.promises_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n")
    for text in report["broken"]:
        print(f"BROKEN  {text}", file=sys.stderr)


def _latency(environment: Environment, lag: LagMeter) -> Latency:
    pings = environment.stats.get(PING, REQUEST_TYPE)
    answered = pings.num_requests - pings.num_failures
    return Latency(answered, float(pings.get_response_time_percentile(0.99)), lag.p99_ms())


events.init.add_listener(_begin)
events.quitting.add_listener(_judge)
